//! The replacement policies, one file for each published algorithm. To add one, write its file and
//! its line here (`docs/developer/add-a-policy.md`).
//!
//! Not here: what several policies are made of ([`containers`](crate::containers)).

use crate::registry::PolicyInfo;

pub use lirs::Lirs;
pub use opt::Future;

/// Declares the file of each policy, and lists their descriptions.
macro_rules! registry {
    ($($policy:ident)*) => {
        $(mod $policy;)*

        /// Every policy, in the order in which tables list them.
        pub fn policies() -> &'static [&'static PolicyInfo] {
            &[$(&$policy::INFO),*]
        }
    };
}

registry! {
    opt
    lru
    lru_ca
    mru
    fifo
    lfu
    fbr
    lru_k
    lfru
    two_q
    mq
    lirs
    arc
    clock
    clock_ca
    clock_pro
    car
    s3_fifo
    sieve
    w_tinylfu
    auto
}
