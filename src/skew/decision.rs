//! One decision to treat a key as hot, from its start to its end, in numbers and in words.

use super::hot_set::Cause;

/// A key that is or was hot.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Hash of the key.
    pub hash: u64,
    /// The word that came with one of the key's sampled rows; 0 for a given key that was never
    /// seen.
    pub example: u64,
    /// Rows seen by the run when the key became hot; 0 for a given key.
    pub promoted_at_row: u64,
    /// Rows seen by the run when it cooled down; none while it is hot.
    pub demoted_at_row: Option<u64>,
    /// Its share of the rows of the last two epochs: the newest estimate while it is hot, the
    /// largest one afterwards.
    pub share: f64,
    /// The share is hardly below this.
    pub share_low: f64,
    /// The share is hardly above this.
    pub share_high: f64,
    /// Over how many partial aggregates its rows are or were spread.
    pub salts: u16,
    /// Why it became hot.
    pub cause: Cause,
}

impl Decision {
    /// The decision in words: "user 7: 63 % of rows, 5.0 times a fair share on 8 workers, 16
    /// salts".
    pub fn explain(&self, key_text: &str, workers: u16) -> String {
        let of_fair = self.share * f64::from(workers);
        let times = match of_fair {
            ..0.995 => format!("{of_fair:.2}"),
            _ => format!("{of_fair:.1}"),
        };
        let cause = match self.cause {
            Cause::Balance => "",
            Cause::Speed => " (for speed)",
            Cause::Given => " (named beforehand)",
        };
        format!(
            "{key_text}: {} of rows, {times} times a fair share on {}, {}{cause}",
            percent(self.share),
            counted(workers, "worker"),
            counted(self.salts, "salt"),
        )
    }
}

/// A share as a percentage with two digits that mean something: `63 %`, `6.3 %`, `0.63 %`, `99.1
/// %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        ..0.995 => format!("{percent:.2} %"),
        0.995..9.95 => format!("{percent:.1} %"),
        9.95..98.5 => format!("{percent:.0} %"),
        // Near everything, what is left matters: 99 % and 99.9 % are not alike.
        _ => format!("{percent:.1} %"),
    }
}

fn counted(count: u16, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_can_read_it() {
        let decision = |share, salts, cause| Decision {
            hash: 1,
            example: 7,
            promoted_at_row: 6_400,
            demoted_at_row: None,
            share,
            share_low: share,
            share_high: share,
            salts,
            cause,
        };
        assert_eq!(
            decision(0.63, 16, Cause::Balance).explain("user 7", 8),
            "user 7: 63 % of rows, 5.0 times a fair share on 8 workers, 16 salts"
        );
        assert_eq!(
            decision(0.0041, 2, Cause::Speed).explain("null", 2),
            "null: 0.41 % of rows, 0.01 times a fair share on 2 workers, 2 salts (for speed)"
        );
        assert_eq!(
            decision(0.991, 1, Cause::Given).explain("bot", 1),
            "bot: 99.1 % of rows, 0.99 times a fair share on 1 worker, 1 salt (named beforehand)"
        );
        assert_eq!(percent(0.0), "0.00 %");
        assert_eq!(percent(0.249), "25 %");
    }
}
