//! The five transactions of TPC-C, clause 2, as the pages that they touch in order.
//!
//! A row that is read and then updated is found once: descent, page read, page written.

use std::collections::BTreeSet;

use super::{CUSTOMERS, DISTRICTS, ITEMS, LAST_NAMES, LOADED_NEW_ORDERS, LOADED_ORDERS};
use super::{Order, Tpcc, nurand};
use crate::record::Record;

/// A district, by its number over all warehouses, and its warehouse.
#[derive(Clone, Copy)]
struct Place {
    warehouse: u64,
    district: u64,
}

impl Tpcc {
    /// One transaction of the mix of clause 5.2.3.
    pub(super) fn transaction(&mut self, out: &mut Vec<Record>) {
        match self.random.below(100) {
            0..45 => self.new_order(out),
            45..88 => self.payment(out),
            88..92 => self.order_status(out),
            92..96 => self.delivery(out),
            _ => self.stock_level(out),
        }
    }

    fn new_order(&mut self, out: &mut Vec<Record>) {
        let place = self.home();
        let customer = self.customer_by_number();
        let lines = self.random.between(5, 15);
        self.read_warehouse(place.warehouse, out);
        self.read_district(place.district, out);
        self.schema.district.write(place.district, out);
        self.read_customer(place.district, customer, out);

        let number = self.districts[place.district as usize].orders.len() as u64;
        let row = self.schema.orders.append();
        self.schema.orders.write(row, out);
        self.schema.orders_pk.insert(place.district, number, out);
        // The entries of a customer stay together: its place is the one that the load gave it.
        let by_customer = place.district * LOADED_ORDERS + customer;
        self.schema.orders_customer.change(by_customer, out);
        let new_order_row = self.schema.new_order.append();
        self.schema.new_order.write(new_order_row, out);
        let place_of_new = number - (LOADED_ORDERS - LOADED_NEW_ORDERS);
        self.schema.new_order_pk.insert(place.district, place_of_new, out);

        let lines_before = self.districts[place.district as usize].lines;
        let first_line_row = self.schema.order_line.rows as u32;
        let mut items = Vec::with_capacity(lines as usize);
        for line in 0..lines {
            let item = nurand(&mut self.random, 8191, ITEMS - 1, self.constants.item);
            let supplier = self.other_warehouse(place.warehouse, 0.01);
            self.schema.item_pk.find(item, out);
            self.schema.item.read(item, out);
            self.read_stock(supplier, item, out);
            self.schema.stock.write(supplier * ITEMS + item, out);
            let line_row = self.schema.order_line.append();
            self.schema.order_line.write(line_row, out);
            let line_place = u64::from(lines_before) + line;
            self.schema.order_line_pk.insert(place.district, line_place, out);
            items.push(item as u32);
        }

        let district = &mut self.districts[place.district as usize];
        district.new_orders.push_back(new_order_row as u32);
        district.remember_items(items);
        district.add(Order {
            row: row as u32,
            first_line_row,
            lines_before,
            customer: customer as u16,
            lines: lines as u16,
        });
    }

    fn payment(&mut self, out: &mut Vec<Record>) {
        let place = self.home();
        let customers_warehouse = self.other_warehouse(place.warehouse, 0.15);
        let customers_district = if customers_warehouse == place.warehouse {
            place.district
        } else {
            customers_warehouse * DISTRICTS + self.random.below(DISTRICTS)
        };
        self.read_warehouse(place.warehouse, out);
        self.schema.warehouse.write(place.warehouse, out);
        self.read_district(place.district, out);
        self.schema.district.write(place.district, out);
        let customer = self.find_customer(customers_district, out);
        self.schema.customer.write(customers_district * CUSTOMERS + customer, out);
        let row = self.schema.history.append();
        self.schema.history.write(row, out);
    }

    fn order_status(&mut self, out: &mut Vec<Record>) {
        let place = self.home();
        let customer = self.find_customer(place.district, out);
        let district = &self.districts[place.district as usize];
        let number = district.last_order_of[customer as usize];
        let order = district.orders[number as usize];
        self.schema.orders_customer.find(place.district * LOADED_ORDERS + customer, out);
        self.schema.orders.read(u64::from(order.row), out);
        self.find_lines(place.district, order, out);
        for row in line_rows(order) {
            self.schema.order_line.read(row, out);
        }
    }

    /// Delivers the oldest new order of each district of a warehouse.
    fn delivery(&mut self, out: &mut Vec<Record>) {
        let warehouse = self.home().warehouse;
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let state = &mut self.districts[district as usize];
            let number = (state.orders.len() - state.new_orders.len()) as u64;
            let Some(new_order_row) = state.new_orders.pop_front() else { continue };
            let order = state.orders[number as usize];
            let place_of_new = number - (LOADED_ORDERS - LOADED_NEW_ORDERS);
            self.schema.new_order_pk.find(district, place_of_new, out);
            self.schema.new_order_pk.remove(district, place_of_new, out);
            self.schema.new_order.write(u64::from(new_order_row), out);
            self.schema.orders_pk.find(district, number, out);
            self.schema.orders.read(u64::from(order.row), out);
            self.schema.orders.write(u64::from(order.row), out);
            self.find_lines(district, order, out);
            for row in line_rows(order) {
                self.schema.order_line.read(row, out);
                self.schema.order_line.write(row, out);
            }
            let customer = u64::from(order.customer);
            self.read_customer(district, customer, out);
            self.schema.customer.write(district * CUSTOMERS + customer, out);
        }
    }

    /// Reads the lines of the last 20 orders, then the stock of each item in them once.
    fn stock_level(&mut self, out: &mut Vec<Record>) {
        let place = self.home();
        self.read_district(place.district, out);
        let district = &self.districts[place.district as usize];
        let recent = &district.orders[district.orders.len() - district.recent_items.len()..];
        let count = recent.iter().map(|order| u64::from(order.lines)).sum();
        let first = u64::from(recent[0].lines_before);
        self.schema.order_line_pk.find_range(place.district, first, count, out);
        for &order in recent {
            for row in line_rows(order) {
                self.schema.order_line.read(row, out);
            }
        }
        let items: BTreeSet<u32> = district.recent_items.iter().flatten().copied().collect();
        for item in items {
            self.read_stock(place.warehouse, u64::from(item), out);
        }
    }

    /// The terminal that asks: every district has one.
    fn home(&mut self) -> Place {
        let district = self.random.below(self.warehouses * DISTRICTS);
        Place { warehouse: district / DISTRICTS, district }
    }

    /// `home`, or with the given probability any other warehouse.
    fn other_warehouse(&mut self, home: u64, probability: f64) -> u64 {
        if !self.random.chance(probability) || self.warehouses == 1 {
            return home;
        }
        let other = self.random.below(self.warehouses - 1);
        if other < home { other } else { other + 1 }
    }

    fn customer_by_number(&mut self) -> u64 {
        nurand(&mut self.random, 1023, CUSTOMERS - 1, self.constants.customer)
    }

    /// Finds and reads a customer: 60 % by last name, where all of that name are read and the
    /// middle one is meant; else by number.
    fn find_customer(&mut self, district: u64, out: &mut Vec<Record>) -> u64 {
        if !self.random.chance(0.6) {
            let customer = self.customer_by_number();
            self.read_customer(district, customer, out);
            return customer;
        }
        let name = nurand(&mut self.random, 255, LAST_NAMES - 1, self.constants.last_name);
        let customers = &self.names.customers[name as usize];
        let rank = district * CUSTOMERS + self.names.before[name as usize];
        self.schema.customer_name.find_range(rank, customers.len() as u64, out);
        for &customer in customers {
            self.schema.customer.read(district * CUSTOMERS + u64::from(customer), out);
        }
        u64::from(customers[(customers.len() - 1) / 2])
    }

    fn read_warehouse(&self, warehouse: u64, out: &mut Vec<Record>) {
        self.schema.warehouse_pk.find(warehouse, out);
        self.schema.warehouse.read(warehouse, out);
    }

    fn read_district(&self, district: u64, out: &mut Vec<Record>) {
        self.schema.district_pk.find(district, out);
        self.schema.district.read(district, out);
    }

    fn read_customer(&self, district: u64, customer: u64, out: &mut Vec<Record>) {
        let row = district * CUSTOMERS + customer;
        self.schema.customer_pk.find(row, out);
        self.schema.customer.read(row, out);
    }

    fn read_stock(&self, warehouse: u64, item: u64, out: &mut Vec<Record>) {
        let row = warehouse * ITEMS + item;
        self.schema.stock_pk.find(row, out);
        self.schema.stock.read(row, out);
    }

    fn find_lines(&self, district: u64, order: Order, out: &mut Vec<Record>) {
        let first = u64::from(order.lines_before);
        self.schema.order_line_pk.find_range(district, first, u64::from(order.lines), out);
    }
}

/// Rows of an order's lines: inserted together, they lie together.
fn line_rows(order: Order) -> impl Iterator<Item = u64> {
    let first = u64::from(order.first_line_row);
    first..first + u64::from(order.lines)
}
