//! The combinations that a simulation refuses, in one table, each with its reason. All others are
//! simulated. Numbers out of range, and what a policy or a placement refuses by itself, are checked
//! where these are made.

use undercroft_level::placement::{Eviction, OnHit, Placement};
use undercroft_policy::{Awareness, Knows, Spec, WriteMode};

use crate::tree::Division;
use crate::{Config, Error, Evictions, FlashLevel, Rule, Sharing};

/// A configured simulation.
pub(crate) struct Combination<'a> {
    pub config: &'a Config,
    /// Whether the clients share their blocks.
    pub shares_data: bool,
}

/// A row of the table.
struct Refusal {
    applies: fn(&Combination<'_>) -> bool,
    why: fn(&Combination<'_>) -> String,
}

/// The table. The first row that applies gives the reason.
const REFUSALS: &[Refusal] = &[
    Refusal {
        applies: |asked| {
            asked.config.timing.is_none() && asked.placement().is_some_and(Placement::is_by_cost)
        },
        why: |_| {
            "down=auto weighs the time that a block takes on the link against the time of a disk, \
             and without a clock nothing takes time: add --timed, or choose down=reload or \
             down=demote"
                .into()
        },
    },
    Refusal {
        applies: |asked| asked.config.has_clients() && asked.has_policy("opt"),
        why: |_| {
            "opt with several clients or with a clock: what reaches a cache depends on the other \
             caches, so the best choice cannot be known beforehand; use another policy"
                .into()
        },
    },
    Refusal {
        applies: |asked| {
            let Config { lowest, times, .. } = asked.config;
            let is_plain = !lowest.is_altered() && times.costs.is_none();
            asked.config.has_clients() && !asked.is_scheme() && !is_plain
        },
        why: |_| {
            "--stream-cutoff, --write-back, --costs: not with several clients or servers, or \
             --timed; they are for one client and no clock"
                .into()
        },
    },
    Refusal {
        applies: |asked| asked.config.has_clients() && asked.config.evictions != Evictions::Exact,
        why: |_| {
            "--evictions: below several clients, and with --timed, evictions are those of the \
             simulated clients (exact)"
                .into()
        },
    },
    Refusal {
        applies: |asked| asked.is_scheme() && asked.config.timing.is_some(),
        why: |_| {
            "--timed: not under a scheme that moves blocks by hints, which has no clock; leave it \
             out"
            .into()
        },
    },
    Refusal {
        applies: |asked| asked.is_scheme() && !asked.config.lowest.is_plain(),
        why: |_| {
            "--stream-cutoff, --write-back, --flash: not under a scheme that moves blocks by hints; \
             leave them out"
                .into()
        },
    },
    Refusal {
        applies: |asked| asked.config.has_clients() && asked.aware().is_some(),
        why: |asked| asked.nobody_tells("with several clients or with a clock"),
    },
    Refusal {
        applies: |asked| asked.is_access() && asked.aware().is_some() && asked.levels() != 2,
        why: |_| "a content-aware policy needs one neighbour: two levels, --l1 and --l2".into(),
    },
    Refusal {
        applies: |asked| asked.is_access() && asked.aware().is_some() && asked.has_policy("opt"),
        why: |_| {
            "opt beside a content-aware policy: which references reach a level depends on what the \
             other holds, so the best choice cannot be known beforehand"
                .into()
        },
    },
    Refusal {
        applies: |asked| asked.cooperates() && !asked.aware().is_none_or(|_| asked.tells_aware()),
        why: |asked| asked.nobody_tells("where levels cooperate"),
    },
    Refusal {
        applies: |asked| {
            asked.cooperates() && asked.levels() == 1 && *asked.evictions() == Evictions::Exact
        },
        why: |asked| {
            format!(
                "placement {} with one level: nothing is known of the client's evictions; add a \
                 level above, or take them from buffer addresses (--evictions cct), from what \
                 clients told while it was recorded (--evictions told), or from an \
                 emulated client (--evictions estimate)",
                asked.name()
            )
        },
    },
    Refusal {
        applies: |asked| matches!(asked.evictions(), Evictions::Derived(_)) && asked.levels() > 1,
        why: |_| {
            "--evictions cct and told are for the one level below the client that was recorded: \
             the levels above it would be a second client; leave all levels out but one"
                .into()
        },
    },
    Refusal {
        applies: |asked| {
            *asked.evictions() != Evictions::Exact
                && matches!(asked.placement(), Some(Placement::Global(_)))
        },
        why: |asked| {
            format!(
                "placement {} needs the evicted blocks with their data, and derived or inferred \
                 evictions come without; use eviction",
                asked.name()
            )
        },
    },
    Refusal {
        applies: |asked| *asked.evictions() == Evictions::Estimated && asked.levels() > 2,
        why: |_| {
            "--evictions estimate is for one server below one client: at most two levels".into()
        },
    },
    Refusal {
        applies: |asked| asked.is_scheme() && asked.shares_data,
        why: |asked| {
            format!(
                "placement {} with clients that share data: a block would be in several places at \
                 once, and the scheme holds it in one; leave --data shared out",
                asked.name()
            )
        },
    },
    Refusal {
        applies: |asked| asked.is_scheme() && asked.config.write_mode != WriteMode::Allocate,
        why: |asked| {
            format!(
                "placement {}: writes allocate there, as reads do; use --write-mode allocate",
                asked.name()
            )
        },
    },
    Refusal {
        applies: |asked| {
            asked.config.lowest.is_altered() && (!asked.is_access() || asked.aware().is_some())
        },
        why: |_| {
            "--stream-cutoff, --write-back: counted for a lowest level that places blocks at the \
             access and does not go by what others hold; use --placement access and another policy"
                .into()
        },
    },
    Refusal {
        applies: |asked| {
            let flash = asked.config.lowest.flash.as_ref();
            let lacks_rate =
                |it: &FlashLevel| it.spec.budget.bytes().is_some() && it.requests_per_s.is_none();
            asked.config.timing.is_none() && flash.is_some_and(lacks_rate)
        },
        why: |_| {
            "--flash: budget= is for a day, so it needs a clock (--timed), or the requests a \
             second: add rate=, as rate=5000"
                .into()
        },
    },
    Refusal {
        applies: |asked| asked.config.lowest.flash.is_some() && asked.config.lowest.is_altered(),
        why: |_| {
            "--flash with --stream-cutoff or --write-back: a flash level sees every block that \
             leaves memory, clean; leave them out (flash has sequential=SIZE of its own)"
                .into()
        },
    },
    Refusal {
        applies: |asked| {
            let is_whole = |all: Sharing| all.servers == 1 && all.division == Division::Shared;
            let is_one = asked.config.sharing.is_none_or(is_whole);
            let is_known = !asked.has_policy("opt") && asked.aware().is_none();
            asked.config.lowest.flash.is_some() && !(is_one && is_known)
        },
        why: |_| {
            "--flash with several servers, a divided cache, opt or a content-aware policy: it is \
             simulated below the memory of one server, with any other policy"
                .into()
        },
    },
    Refusal {
        applies: |asked| {
            asked.config.lowest.write_back.is_some()
                && asked.config.write_mode == WriteMode::Invalidate
        },
        why: |_| {
            "--write-back with --write-mode invalidate: writes leave nothing in the cache that \
             could be written later; use allocate or no-allocate"
                .into()
        },
    },
];

impl Combination<'_> {
    /// Checks the combination.
    ///
    /// # Errors
    /// The parts contradict each other; the message gives the reason and a possible combination.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match REFUSALS.iter().find(|row| (row.applies)(self)) {
            None => Ok(()),
            Some(row) => Err(Error::Request((row.why)(self))),
        }
    }

    fn placement(&self) -> Option<&Placement> {
        match &self.config.rule {
            Rule::Placement(placement) => Some(placement),
            Rule::Scheme(_) => None,
        }
    }

    fn name(&self) -> &'static str {
        match &self.config.rule {
            Rule::Placement(placement) => placement.name(),
            Rule::Scheme(scheme) => scheme.info().name,
        }
    }

    fn is_scheme(&self) -> bool {
        self.placement().is_none()
    }

    fn is_access(&self) -> bool {
        self.placement() == Some(&Placement::Access)
    }

    /// Whether the levels of one client cooperate: the lower ones place what the level above
    /// evicts.
    fn cooperates(&self) -> bool {
        !self.config.has_clients() && !self.is_access() && !self.is_scheme()
    }

    /// Who places at the access asks for nobody's evictions.
    fn evictions(&self) -> &Evictions {
        if self.is_access() { &Evictions::Exact } else { &self.config.evictions }
    }

    fn levels(&self) -> usize {
        self.config.levels.len()
    }

    fn policies(&self) -> impl Iterator<Item = &Spec> {
        self.config.levels.iter().map(|level| &level.policy)
    }

    fn has_policy(&self, name: &str) -> bool {
        self.policies().any(|policy| policy.info().name == name)
    }

    /// The first policy that is content-aware.
    fn aware(&self) -> Option<&Spec> {
        self.policies().find(|policy| Awareness::of(policy).is_some())
    }

    /// Whether the only content-aware level of several that cooperate learns exactly what its
    /// neighbour holds. The first level always does. The second of two does if blocks stay after
    /// the client has read them, so that both can hold the same block.
    fn tells_aware(&self) -> bool {
        let knows: Vec<_> =
            self.policies().map(|policy| Awareness::of(policy).map(|aware| aware.knows)).collect();
        let keeps = matches!(
            self.placement(),
            Some(Placement::Eviction(Eviction { on_hit: OnHit::Keep, .. }))
        );
        match knows[..] {
            [Some(Knows::Exact), ref lower @ ..] if !lower.is_empty() => {
                lower.iter().all(Option::is_none)
            }
            [None, Some(Knows::Exact)] => keeps && *self.evictions() == Evictions::Exact,
            _ => false,
        }
    }

    /// The message that nothing informs a content-aware policy in the case `there`.
    fn nobody_tells(&self, there: &str) -> String {
        let policy = self.aware().map(Spec::to_string).unwrap_or_default();
        format!(
            "{policy} {there}: a content-aware policy is simulated at one or both of two levels \
             with placement access, with knows=exact at the first of any with another placement, \
             and with knows=exact at the second of two with eviction,on-hit=keep"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Combination, REFUSALS};
    use crate::{Config, Evictions, LevelConfig, Sharing, Timing, WriteBack};
    use undercroft_policy::WriteMode;

    /// The row that refuses these levels (from the top on) under a rule, after `change`.
    fn row(policies: &[&str], rule: &str, change: impl FnOnce(&mut Config)) -> Option<usize> {
        let level = |policy: &&str| LevelConfig { capacity: 9, policy: policy.parse().unwrap() };
        let levels = policies.iter().map(level).collect();
        let mut config = Config { levels, rule: rule.parse().unwrap(), ..Config::default() };
        change(&mut config);
        refused(&config, false)
    }

    fn refused(config: &Config, shares_data: bool) -> Option<usize> {
        let asked = Combination { config, shares_data };
        assert_eq!(asked.check().is_err(), REFUSALS.iter().any(|row| (row.applies)(&asked)));
        REFUSALS.iter().position(|row| (row.applies)(&asked))
    }

    fn shared(config: &mut Config) {
        config.sharing = Some(Sharing::default());
    }

    fn timed(config: &mut Config) {
        config.timing = Some(Timing::default());
    }

    fn derived(config: &mut Config) {
        config.evictions = Evictions::Derived(std::sync::Arc::default());
    }

    fn streams_pass(config: &mut Config) {
        config.lowest.stream_cutoff_bytes = 1;
    }

    fn flash(config: &mut Config) {
        config.lowest.flash = "9blk".parse().ok();
    }

    #[test]
    fn each_row_refuses_something() {
        let scheme = Config { rule: "demote".parse().unwrap(), ..Config::default() };
        let rows = [
            row(&["lru", "mq"], "eviction,down=auto", |_| ()),
            row(&["lru", "opt"], "access", shared),
            row(&["lru", "lru"], "access", |config| {
                shared(config);
                streams_pass(config);
            }),
            row(&["lru", "lru"], "eviction", |config| {
                timed(config);
                derived(config);
            }),
            row(&[], "demote", timed),
            row(&[], "demote", streams_pass),
            row(&["lru", "lru-ca"], "access", shared),
            row(&["lru-ca"], "access", |_| ()),
            row(&["opt", "lru-ca"], "access", |_| ()),
            row(&["lru", "lru-ca"], "eviction,on-hit=move", |_| ()),
            row(&["lru"], "eviction", |_| ()),
            row(&["lru", "mq"], "eviction", derived),
            row(&["mq"], "gl", derived),
            row(&["lru"; 3], "eviction", |config| config.evictions = Evictions::Estimated),
            refused(&scheme, true),
            row(&[], "demote", |config| config.write_mode = WriteMode::NoAllocate),
            row(&["lru", "mq"], "gl", streams_pass),
            row(&["lru"], "access", |config| {
                config.lowest.flash = "9blk,budget=1MiB/day".parse().ok();
            }),
            row(&["lru"], "access", |config| {
                streams_pass(config);
                flash(config);
            }),
            row(&["opt"], "access", flash),
            row(&["lru"], "access", |config| {
                config.lowest.write_back = Some(WriteBack::default());
                config.write_mode = WriteMode::Invalidate;
            }),
        ];
        assert!(rows.iter().enumerate().all(|(at, row)| *row == Some(at)), "{rows:?}");
        assert_eq!(rows.len(), REFUSALS.len());
    }

    #[test]
    fn what_makes_sense_is_simulated() {
        for (policies, placement) in [
            (&["lru-ca", "lru"][..], "access"),
            (&["lru-ca", "lru-ca"], "access"),
            (&["lru", "mq,ca=yes"], "eviction,on-hit=keep"),
            (&["lru-ca", "mq"], "eviction"),
            (&["lru-ca", "mq", "arc"], "gl"),
            (&["lru", "opt", "lru"], "access"),
        ] {
            assert_eq!(row(policies, placement, |_| ()), None, "{policies:?} {placement}");
        }
        assert_eq!(row(&["lru", "mq"], "eviction,down=auto", timed), None);
    }
}
