//! `tpcc`: the page references of a database that runs TPC-C, as its own buffer cache sees them
//! (a first-level trace). After the public TPC-C standard specification, revision 5.11.
//!
//! Modelled: the nine tables with the row sizes of clause 1.2 and their cardinalities; the mix
//! 45/43/4/4/4; NURand for customers, items and last names, with its constants drawn from the
//! seed; 1 % remote items and 15 % remote payments; 60 % of customers found by last name; 10
//! items an order on average; B-tree descents page by page from the root; orders, order lines
//! and history that grow at the end of their files; new orders that deliveries take, oldest
//! first; stock level's look at the items of the last 20 orders of a district.
//!
//! Not modelled: transactions that overlap (they run one after another); the 1 % of new orders
//! that roll back; undo, logs, free-space maps and multiple row versions (updates are in place);
//! think times; page splits of the index of orders by customer; pages that deletions leave
//! empty (they are not used again). Each page access is one reference, also when the same page
//! was the last one: real pools see such repeated pins too.
//!
//! Memory: 16 bytes an order. Tables and trees are in `tpcc/schema.rs`, the five transactions in
//! `tpcc/transactions.rs`.

mod schema;
mod transactions;

use std::collections::VecDeque;

use super::{BATCH, Generator, Kind, Made, Parameter, SEED, Source, Values};
use crate::record::Record;
use schema::Schema;
use undercroft_random::SplitMix64;

pub(super) const GENERATOR: Generator = Generator {
    name: "tpcc",
    about: "page references of a database under TPC-C, one space a table or index",
    parameters: &[
        Parameter {
            key: "warehouses",
            about: "size of the database, about 90 MiB a warehouse",
            kind: Kind::Whole { min: 1, max: 1000, default: 10 },
        },
        Parameter {
            key: "transactions",
            about: "transactions, about 125 references each",
            // Row numbers of order lines, ten an order, must stay below 2^32.
            kind: Kind::Whole { min: 0, max: 500_000_000, default: 100_000 },
        },
        Parameter {
            key: "page-bytes",
            about: "page size in bytes",
            kind: Kind::Whole { min: 2048, max: 65_536, default: 8192 },
        },
        SEED,
    ],
    make,
};

const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 3000;
const ITEMS: u64 = 100_000;
/// Orders of a district after the initial load, and the newest of them not delivered yet.
const LOADED_ORDERS: u64 = 3000;
const LOADED_NEW_ORDERS: u64 = 900;
const LAST_NAMES: u64 = 1000;
/// Orders that stock level looks at.
const RECENT_ORDERS: usize = 20;

/// The running database: only what decides which pages are touched.
struct Tpcc {
    random: SplitMix64,
    schema: Schema,
    warehouses: u64,
    names: Names,
    constants: Constants,
    /// By warehouse, then district.
    districts: Vec<District>,
    transactions_left: u64,
}

/// NURand's run-time constants, clause 2.1.6.
struct Constants {
    last_name: u64,
    customer: u64,
    item: u64,
}

#[derive(Clone, Copy)]
struct Order {
    row: u32,
    first_line_row: u32,
    /// Order lines of the district before this order's: its place in the key order.
    lines_before: u32,
    customer: u16,
    lines: u16,
}

struct District {
    orders: Vec<Order>,
    /// Rows of the new-order table, oldest first: those of the last orders.
    new_orders: VecDeque<u32>,
    last_order_of: Vec<u32>,
    recent_items: VecDeque<Vec<u32>>,
    lines: u32,
}

/// Which customers share a last name: the same in every district, which saves memory and changes
/// no frequency.
struct Names {
    /// Customers by name.
    customers: Vec<Vec<u16>>,
    /// Customers with smaller names: where a name begins in the index by name.
    before: Vec<u64>,
}

fn make(values: &Values) -> Made {
    let page_bytes = values.whole("page-bytes");
    let warehouses = values.whole("warehouses");
    let mut random = SplitMix64::new(values.whole("seed"));
    let loaded_name = random.below(256);
    let constants = Constants {
        // The distance between load and run must be 65 to 119, but not 96 or 112.
        last_name: if loaded_name >= 100 { loaded_name - 100 } else { loaded_name + 100 },
        customer: random.below(1024),
        item: random.below(8192),
    };
    let names = Names::new(&mut random, loaded_name);
    let mut schema = Schema::new(page_bytes, warehouses);
    let districts = (0..warehouses * DISTRICTS)
        .map(|district| load_district(&mut random, &mut schema, district))
        .collect();
    Made {
        block_bytes: Some(page_bytes as u32),
        has_ops: true,
        spaces: schema::SPACES.iter().map(|name| (*name).into()).collect(),
        source: Box::new(Tpcc {
            random,
            schema,
            warehouses,
            names,
            constants,
            districts,
            transactions_left: values.whole("transactions"),
        }),
    }
}

/// Non-uniform random number of clause 2.1.6, in `0..=high`.
fn nurand(random: &mut SplitMix64, a: u64, high: u64, constant: u64) -> u64 {
    ((random.between(0, a) | random.between(0, high)) + constant) % (high + 1)
}

impl Names {
    fn new(random: &mut SplitMix64, constant: u64) -> Self {
        let mut customers = vec![Vec::new(); LAST_NAMES as usize];
        for customer in 0..CUSTOMERS {
            // The first thousand have every name once.
            let name = match customer {
                0..LAST_NAMES => customer,
                _ => nurand(random, 255, LAST_NAMES - 1, constant),
            };
            customers[name as usize].push(customer as u16);
        }
        let before = customers.iter().scan(0, |sum, customers| {
            let before = *sum;
            *sum += customers.len() as u64;
            Some(before)
        });
        let before = before.collect();
        Self { customers, before }
    }
}

/// The initial load of a district, clause 4.3.3: an order for each customer, in random order.
fn load_district(random: &mut SplitMix64, schema: &mut Schema, district: u64) -> District {
    let mut customers: Vec<u16> = (0..CUSTOMERS as u16).collect();
    for i in (1..customers.len()).rev() {
        customers.swap(i, random.below(i as u64 + 1) as usize);
    }
    let mut loaded = District {
        orders: Vec::with_capacity(LOADED_ORDERS as usize),
        new_orders: VecDeque::new(),
        last_order_of: vec![0; CUSTOMERS as usize],
        recent_items: VecDeque::new(),
        lines: 0,
    };
    for (number, customer) in (0..LOADED_ORDERS).zip(customers) {
        let lines = random.between(5, 15);
        schema.orders_pk.append(district, number);
        if number >= LOADED_ORDERS - LOADED_NEW_ORDERS {
            loaded.new_orders.push_back(schema.new_order.append() as u32);
            schema.new_order_pk.append(district, number - (LOADED_ORDERS - LOADED_NEW_ORDERS));
        }
        let row = schema.orders.append() as u32;
        let first_line_row = schema.order_line.rows as u32;
        for line in 0..lines {
            schema.order_line.append();
            schema.order_line_pk.append(district, u64::from(loaded.lines) + line);
        }
        let items = (0..lines).map(|_| random.below(ITEMS) as u32).collect();
        loaded.add(Order {
            row,
            first_line_row,
            lines_before: loaded.lines,
            customer,
            lines: lines as u16,
        });
        loaded.remember_items(items);
    }
    loaded
}

impl District {
    fn add(&mut self, order: Order) {
        self.last_order_of[usize::from(order.customer)] = self.orders.len() as u32;
        self.lines += u32::from(order.lines);
        self.orders.push(order);
    }

    fn remember_items(&mut self, items: Vec<u32>) {
        if self.recent_items.len() == RECENT_ORDERS {
            self.recent_items.pop_front();
        }
        self.recent_items.push_back(items);
    }
}

impl Source for Tpcc {
    fn fill(&mut self, records: &mut Vec<Record>) {
        let enough = records.len() + BATCH as usize;
        while records.len() < enough && self.transactions_left > 0 {
            self.transactions_left -= 1;
            self.transaction(records);
        }
    }
}
