"""TPC-C's conditions of consistency (specification 3.3.2) as statements that return the rows which violate
them. Both databases understand them. `go-tpc check` asks with a subquery for each customer, which takes
PostgreSQL minutes; these join sums. How they are run is in `databases`.
"""

DISTRICT = "d.d_w_id = x.w and d.d_id = x.d"
ORDER_LINES = """(select ol_w_id w, ol_d_id d, ol_o_id o, count(*) n, sum(ol_amount) amount,
    sum(case when ol_delivery_d is null then 1 else 0 end) open from order_line group by ol_w_id, ol_d_id, ol_o_id) x"""
ORDERS = f"orders o join {ORDER_LINES} on o.o_w_id = x.w and o.o_d_id = x.d and o.o_id = x.o"
PAID = """(select h_c_w_id w, h_c_d_id d, h_c_id c, sum(h_amount) amount from history
    group by h_c_w_id, h_c_d_id, h_c_id) p"""
DELIVERED = f"""(select o.o_w_id w, o.o_d_id d, o.o_c_id c, sum(x.amount) amount from {ORDERS}
    where o.o_carrier_id is not null group by o.o_w_id, o.o_d_id, o.o_c_id) v"""
CUSTOMERS = f"""customer k left join {PAID} on p.w = k.c_w_id and p.d = k.c_d_id and p.c = k.c_id
    left join {DELIVERED} on v.w = k.c_w_id and v.d = k.c_d_id and v.c = k.c_id"""

CONDITIONS = {
    "3.3.2.1": """select w_id from warehouse join (select d_w_id w, sum(d_ytd) s from district group by d_w_id) x
        on x.w = w_id where w_ytd <> s""",
    "3.3.2.2, orders": f"""select d_w_id, d_id from district d join
        (select o_w_id w, o_d_id d, max(o_id) m from orders group by o_w_id, o_d_id) x
        on {DISTRICT} where d_next_o_id - 1 <> m""",
    "3.3.2.2, new orders": f"""select d_w_id, d_id from district d join
        (select no_w_id w, no_d_id d, max(no_o_id) m from new_order group by no_w_id, no_d_id) x
        on {DISTRICT} where d_next_o_id - 1 <> m""",
    "3.3.2.3": """select no_w_id, no_d_id from new_order group by no_w_id, no_d_id
        having max(no_o_id) - min(no_o_id) + 1 <> count(*)""",
    "3.3.2.4": """select o.w, o.d from (select o_w_id w, o_d_id d, sum(o_ol_cnt) n from orders group by o_w_id, o_d_id) o
        join (select ol_w_id w, ol_d_id d, count(*) n from order_line group by ol_w_id, ol_d_id) x
        on o.w = x.w and o.d = x.d where o.n <> x.n""",
    "3.3.2.5": """select o_w_id, o_d_id, o_id from orders left join new_order
        on no_w_id = o_w_id and no_d_id = o_d_id and no_o_id = o_id
        where (o_carrier_id is null and no_o_id is null) or (o_carrier_id is not null and no_o_id is not null)""",
    "3.3.2.6": f"""select o_w_id, o_d_id, o_id from {ORDERS} where o_ol_cnt <> n""",
    "3.3.2.7": f"""select o_w_id, o_d_id, o_id from {ORDERS} where
        (o_carrier_id is null and open <> n) or (o_carrier_id is not null and open <> 0)""",
    "3.3.2.8": """select w_id from warehouse join (select h_w_id w, sum(h_amount) s from history group by h_w_id) x
        on x.w = w_id where w_ytd <> s""",
    "3.3.2.9": f"""select d_w_id, d_id from district d join
        (select h_w_id w, h_d_id d, sum(h_amount) s from history group by h_w_id, h_d_id) x
        on {DISTRICT} where d_ytd <> s""",
    "3.3.2.10": f"""select c_w_id, c_d_id, c_id from {CUSTOMERS}
        where c_balance <> coalesce(v.amount, 0) - coalesce(p.amount, 0)""",
    "3.3.2.12": f"""select c_w_id, c_d_id, c_id from {CUSTOMERS}
        where c_balance + c_ytd_payment <> coalesce(v.amount, 0)""",
}
