//! Where rows and index entries lie: tables, B-trees and their files.
//!
//! Which of them a transaction touches is in `transactions.rs`.

use super::{CUSTOMERS, DISTRICTS, ITEMS, LOADED_ORDERS};
use crate::generate::one_block;
use crate::record::{Op, Record};

/// Files, by number of the address space: first the tables, then the indexes.
pub(super) const SPACES: [&str; 19] = [
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
    "warehouse_pk",
    "district_pk",
    "customer_pk",
    "customer_name",
    "new_order_pk",
    "orders_pk",
    "orders_customer",
    "order_line_pk",
    "item_pk",
    "stock_pk",
];

/// Bytes of a page that hold no rows, and of a row beside its columns, as in PostgreSQL.
const PAGE_HEADER_BYTES: u64 = 24;
const ROW_HEADER_BYTES: u64 = 28;

/// A heap of rows; inserts go to its end.
pub(super) struct Table {
    space: u32,
    rows_per_page: u64,
    pub(super) rows: u64,
}

/// A B-tree whose entries are all there from the start, by rank in key order. Page 0 is the root.
pub(super) struct StaticIndex {
    space: u32,
    entries_per_leaf: u64,
    fanout: u64,
    /// First page of each level, root first.
    levels: Vec<u64>,
}

/// A B-tree in which each district appends to the end of its own range of keys. Leaves are
/// filled up before the next is begun, as an append splits them.
pub(super) struct GrowingIndex {
    space: u32,
    entries_per_leaf: u64,
    fanout: u64,
    /// By district, then by leaf: the leaf's page and its inner node.
    leaves: Vec<Vec<(u32, u32)>>,
    inner: Vec<Inner>,
    /// Level between root and inner nodes, one for each `fanout` of these; empty in small trees.
    upper: Vec<u32>,
    pages: u32,
}

struct Inner {
    page: u32,
    children: u64,
}

pub(super) struct Schema {
    pub(super) warehouse: Table,
    pub(super) district: Table,
    pub(super) customer: Table,
    pub(super) history: Table,
    pub(super) new_order: Table,
    pub(super) orders: Table,
    pub(super) order_line: Table,
    pub(super) item: Table,
    pub(super) stock: Table,
    pub(super) warehouse_pk: StaticIndex,
    pub(super) district_pk: StaticIndex,
    pub(super) customer_pk: StaticIndex,
    pub(super) customer_name: StaticIndex,
    pub(super) new_order_pk: GrowingIndex,
    pub(super) orders_pk: GrowingIndex,
    pub(super) orders_customer: StaticIndex,
    pub(super) order_line_pk: GrowingIndex,
    pub(super) item_pk: StaticIndex,
    pub(super) stock_pk: StaticIndex,
}

impl Schema {
    pub(super) fn new(page_bytes: u64, warehouses: u64) -> Self {
        let districts = warehouses * DISTRICTS;
        let customers = districts * CUSTOMERS;
        let table = |name, row_bytes, rows| Table {
            space: space(name),
            rows_per_page: (page_bytes - PAGE_HEADER_BYTES) / (row_bytes + ROW_HEADER_BYTES),
            rows,
        };
        // Leaves and inner nodes are nine tenths full, as a load leaves them.
        let fit = |entry_bytes| (page_bytes - PAGE_HEADER_BYTES) * 9 / 10 / entry_bytes;
        let fixed =
            |name, entry_bytes, entries| StaticIndex::new(space(name), fit(entry_bytes), entries);
        let growing =
            |name, entry_bytes| GrowingIndex::new(space(name), fit(entry_bytes), districts);
        Self {
            warehouse: table("warehouse", 89, warehouses),
            district: table("district", 95, districts),
            customer: table("customer", 655, customers),
            history: table("history", 46, customers),
            new_order: table("new_order", 8, 0),
            orders: table("orders", 24, 0),
            order_line: table("order_line", 54, 0),
            item: table("item", 82, ITEMS),
            stock: table("stock", 306, warehouses * ITEMS),
            warehouse_pk: fixed("warehouse_pk", 20, warehouses),
            district_pk: fixed("district_pk", 20, districts),
            customer_pk: fixed("customer_pk", 28, customers),
            customer_name: fixed("customer_name", 48, customers),
            new_order_pk: growing("new_order_pk", 28),
            orders_pk: growing("orders_pk", 28),
            orders_customer: fixed("orders_customer", 28, districts * LOADED_ORDERS),
            order_line_pk: growing("order_line_pk", 28),
            item_pk: fixed("item_pk", 20, ITEMS),
            stock_pk: fixed("stock_pk", 20, warehouses * ITEMS),
        }
    }
}

fn space(name: &str) -> u32 {
    SPACES.iter().position(|space| *space == name).expect("every file is listed") as u32
}

impl Table {
    /// Adds a row at the end and tells its number.
    pub(super) fn append(&mut self) -> u64 {
        self.rows += 1;
        self.rows - 1
    }

    pub(super) fn read(&self, row: u64, out: &mut Vec<Record>) {
        out.push(one_block(self.space, row / self.rows_per_page, Op::Read));
    }

    pub(super) fn write(&self, row: u64, out: &mut Vec<Record>) {
        out.push(one_block(self.space, row / self.rows_per_page, Op::Write));
    }
}

impl StaticIndex {
    fn new(space: u32, entries_per_page: u64, entries: u64) -> Self {
        let mut sizes = vec![entries.div_ceil(entries_per_page)];
        while sizes[sizes.len() - 1] > 1 {
            sizes.push(sizes[sizes.len() - 1].div_ceil(entries_per_page));
        }
        let levels = sizes.iter().rev().scan(0, |next, size| {
            let first = *next;
            *next += size;
            Some(first)
        });
        let levels = levels.collect();
        Self { space, entries_per_leaf: entries_per_page, fanout: entries_per_page, levels }
    }

    fn descend(&self, rank: u64, leaf_op: Op, out: &mut Vec<Record>) {
        let leaf = rank / self.entries_per_leaf;
        let deepest = self.levels.len() - 1;
        for (level, first) in self.levels.iter().enumerate() {
            let node = leaf / self.fanout.pow((deepest - level) as u32);
            let op = if level == deepest { leaf_op } else { Op::Read };
            out.push(one_block(self.space, first + node, op));
        }
    }

    /// Finds the entry of a rank.
    pub(super) fn find(&self, rank: u64, out: &mut Vec<Record>) {
        self.descend(rank, Op::Read, out);
    }

    /// Changes the leaf of a rank.
    pub(super) fn change(&self, rank: u64, out: &mut Vec<Record>) {
        self.descend(rank, Op::Write, out);
    }

    /// Finds a rank and reads on to the leaf of the last of `count` entries.
    pub(super) fn find_range(&self, rank: u64, count: u64, out: &mut Vec<Record>) {
        self.find(rank, out);
        let first_leaf = self.levels[self.levels.len() - 1];
        let leaf_of = |rank: u64| rank / self.entries_per_leaf;
        for leaf in leaf_of(rank) + 1..=leaf_of(rank + count - 1) {
            out.push(one_block(self.space, first_leaf + leaf, Op::Read));
        }
    }
}

impl GrowingIndex {
    fn new(space: u32, entries_per_page: u64, districts: u64) -> Self {
        Self {
            space,
            entries_per_leaf: entries_per_page,
            fanout: entries_per_page,
            leaves: vec![Vec::new(); districts as usize],
            inner: Vec::new(),
            upper: Vec::new(),
            // Page 0 is the root.
            pages: 1,
        }
    }

    fn new_page(&mut self) -> u32 {
        self.pages += 1;
        self.pages - 1
    }

    /// Makes room for the entry with this place in its district's key order. True if that took
    /// a new leaf.
    pub(super) fn append(&mut self, district: u64, place: u64) -> bool {
        let district = district as usize;
        if place / self.entries_per_leaf < self.leaves[district].len() as u64 {
            return false;
        }
        // The new leaf goes beside the district's last one, or beside its neighbour's.
        let neighbour = self.leaves[district].last().map(|&(_, inner)| inner);
        let beside = neighbour.or_else(|| (self.inner.len() as u32).checked_sub(1));
        let inner = match beside {
            Some(inner) if self.inner[inner as usize].children < self.fanout => inner,
            _ => self.new_inner(),
        };
        self.inner[inner as usize].children += 1;
        let page = self.new_page();
        self.leaves[district].push((page, inner));
        true
    }

    fn new_inner(&mut self) -> u32 {
        let page = self.new_page();
        self.inner.push(Inner { page, children: 0 });
        let needed = if self.inner.len() as u64 > self.fanout {
            (self.inner.len() as u64).div_ceil(self.fanout)
        } else {
            0
        };
        while (self.upper.len() as u64) < needed {
            let page = self.new_page();
            self.upper.push(page);
        }
        self.inner.len() as u32 - 1
    }

    /// Reads down to the leaf of an entry; tells that leaf and its inner node.
    fn descend(&self, district: u64, place: u64, out: &mut Vec<Record>) -> (u32, u32) {
        let leaves = &self.leaves[district as usize];
        let (leaf, inner) = leaves[(place / self.entries_per_leaf) as usize];
        let mut read = |page: u32| out.push(one_block(self.space, u64::from(page), Op::Read));
        read(0);
        if let Some(&upper) = self.upper.get((u64::from(inner) / self.fanout) as usize) {
            read(upper);
        }
        let inner = self.inner[inner as usize].page;
        read(inner);
        (leaf, inner)
    }

    fn leaf(&self, leaf: u32, op: Op, out: &mut Vec<Record>) {
        out.push(one_block(self.space, u64::from(leaf), op));
    }

    /// Finds an entry.
    pub(super) fn find(&self, district: u64, place: u64, out: &mut Vec<Record>) {
        let (leaf, _) = self.descend(district, place, out);
        self.leaf(leaf, Op::Read, out);
    }

    /// Removes an entry.
    pub(super) fn remove(&self, district: u64, place: u64, out: &mut Vec<Record>) {
        let (leaf, _) = self.descend(district, place, out);
        self.leaf(leaf, Op::Write, out);
    }

    /// Adds an entry after the district's last; a new leaf changes its inner node too.
    pub(super) fn insert(&mut self, district: u64, place: u64, out: &mut Vec<Record>) {
        let split = self.append(district, place);
        let (leaf, inner) = self.descend(district, place, out);
        self.leaf(leaf, Op::Write, out);
        if split {
            self.leaf(inner, Op::Write, out);
        }
    }

    /// Finds an entry and reads on to the leaf of the last of `count` entries.
    pub(super) fn find_range(&self, district: u64, place: u64, count: u64, out: &mut Vec<Record>) {
        self.find(district, place, out);
        let leaf_of = |place: u64| place / self.entries_per_leaf;
        for leaf in leaf_of(place) + 1..=leaf_of(place + count - 1) {
            let (page, _) = self.leaves[district as usize][leaf as usize];
            self.leaf(page, Op::Read, out);
        }
    }
}
