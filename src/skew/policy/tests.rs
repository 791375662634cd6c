//! The policy alone, fed with estimates made up for the purpose.

use super::*;

fn estimate(hash: u64, share: f64) -> Estimate {
    Estimate { hash, example: hash + 1, share, share_low: share * 0.9, share_high: share * 1.1 }
}

fn policy(change: impl FnOnce(&mut PolicyConfig)) -> Policy {
    let mut config = PolicyConfig::new(8);
    change(&mut config);
    Policy::new(config).unwrap()
}

const STEP: u64 = 65_536;

#[test]
fn promotes_keeps_and_demotes() {
    let mut policy = policy(|config| config.thresholds.speed_share = 1.0 / 900.0);
    let set = policy.decide(&[estimate(7, 0.63), estimate(9, 0.002)], 10_000).unwrap();
    assert_eq!(set.epoch(), 1);
    let found = |hash| set.find(hash).map(|place| set.keys()[place as usize]);
    assert_eq!(
        found(7).map(|key| (key.cause, key.salts, key.example)),
        Some((Cause::Balance, 16, 8))
    );
    assert_eq!(found(9).map(|key| (key.cause, key.salts)), Some((Cause::Speed, 2)));
    assert_eq!(found(8), None);
    assert!(policy.decide(&[estimate(7, 0.6), estimate(9, 0.002)], 100_000).is_none());
    // Gone, but not for its minimum stay; then demoted, and remembered with its largest share.
    assert!(policy.decide(&[estimate(9, 0.002)], 200_000).is_none());
    let set = policy.decide(&[estimate(9, 0.002)], 272_144).unwrap();
    assert_eq!((set.epoch(), set.len(), set.find(7)), (2, 1, None));
    let ended = policy.decisions().find(|d| d.hash == 7).unwrap();
    assert_eq!((ended.promoted_at_row, ended.demoted_at_row), (10_000, Some(272_144)));
    assert_eq!(
        ended.explain("user 7", 8),
        "user 7: 63 % of rows, 5.0 times a fair share on 8 workers, 16 salts"
    );
    assert_eq!(policy.current().keys(), set.keys());
}

#[test]
fn thresholds_scale_with_workers_and_no_key_is_hot_for_balance_alone() {
    let cause = |workers, share_low| PolicyConfig::new(workers).cause(share_low);
    assert_eq!(cause(2, 0.0099), None);
    assert_eq!(cause(2, 0.0101), Some(Cause::Balance));
    assert_eq!(cause(8, 0.0026), Some(Cause::Balance));
    assert_eq!(cause(64, 0.0015), None, "never below 1/512");
    assert_eq!(cause(1, 0.99), Some(Cause::Speed), "one worker has nobody to share with");
    assert_eq!(cause(1, 0.026), Some(Cause::Speed));
    assert_eq!(cause(1, 0.024), None);
}

#[test]
fn salts_cover_the_multiple_of_a_fair_share() {
    let expected = [(0.004, 8, 2), (0.125, 8, 2), (0.25, 8, 4), (0.63, 8, 16), (0.99, 8, 16)];
    for (share, workers, salts) in expected {
        assert_eq!(salts_for(share, workers), salts, "{share} on {workers}");
    }
    assert_eq!((salts_for(0.99, 64), salts_for(0.5, 32), salts_for(0.99, 4_096)), (128, 32, 128));
    for workers in 1..200_u16 {
        for percent in 1..=100_u16 {
            let share = f64::from(percent) / 100.0;
            let heaviest = share / f64::from(salts_for(share, workers));
            let fair = 1.0 / f64::from(workers);
            assert!(heaviest <= fair || salts_for(share, workers) == SALTS_AUTO_MAX);
        }
    }
}

#[test]
fn salts_follow_the_share_without_flapping() {
    let mut policy = policy(|_| {});
    let salts = |set: HotSet| set.keys()[0].salts;
    assert_eq!(policy.decide(&[estimate(1, 0.02)], 0).map(salts), Some(2));
    assert_eq!(policy.decide(&[estimate(1, 0.60)], STEP).map(salts), Some(16));
    // 0.25 of 8 workers is a step of the salts (4 to 8): to and fro over it makes two changes at
    // most.
    let mut changes = 0;
    for step in 2..200 {
        let share = if step % 2 == 0 { 0.251 } else { 0.249 };
        changes += u32::from(policy.decide(&[estimate(1, share)], step * STEP).is_some());
    }
    assert!(changes <= 2, "{changes}");
    let mut fixed = self::policy(|c| c.salts = Salts::Fixed(3));
    assert_eq!(fixed.decide(&[estimate(1, 0.02)], 0).map(salts), Some(3));
    assert!(fixed.decide(&[estimate(1, 0.9)], STEP).is_none());
}

#[test]
fn given_keys_stay_and_come_first() {
    let mut policy = policy(|c| {
        c.given = vec![5, 6, 5];
        c.hot_keys_max = 3;
    });
    let start = policy.current();
    assert_eq!((start.epoch(), start.len()), (0, 2));
    assert!(start.keys().iter().all(|key| key.cause == Cause::Given && key.salts == 16));
    let all: Vec<Estimate> = (10..20).map(|hash| estimate(hash, 0.05)).collect();
    let set = policy.decide(&all, STEP).unwrap();
    assert!(set.len() == 3 && set.find(5).is_some() && set.find(6).is_some());
    for step in 2..20 {
        policy.decide(&[], step * STEP);
    }
    assert_eq!(policy.current().len(), 2, "given keys stay though they were never seen");
    let mut only = self::policy(|c| {
        c.given = vec![5];
        c.adaptive = false;
    });
    assert!(only.decide(&[estimate(1, 0.9), estimate(5, 0.1)], STEP).is_none());
    let share = only.decisions().next().unwrap().share;
    assert!((share - 0.1).abs() < 1e-9, "shares are reported all the same");
}

#[test]
fn a_full_set_makes_room_for_what_is_twice_as_large() {
    let mut policy = policy(|c| c.hot_keys_max = 4);
    let small: Vec<Estimate> = (0..9).map(|hash| estimate(hash, 0.01)).collect();
    assert_eq!(policy.decide(&small, 0).unwrap().len(), 4);
    let mut all = small.clone();
    all.push(estimate(50, 0.015));
    assert!(policy.decide(&all, 10 * STEP).is_none(), "not twice as large");
    all.push(estimate(60, 0.5));
    assert!(policy.decide(&all, 3 * STEP).is_none(), "minimum stay");
    let set = policy.decide(&all, 20 * STEP).unwrap();
    assert!(set.len() == 4 && set.find(60).is_some() && set.find(50).is_none());
}

#[test]
fn the_log_is_bounded() {
    let mut policy = policy(|c| {
        c.log_max = 10;
        c.stay_rows_min = 0;
        c.change_rows_min = 0;
    });
    for row in 0..100 {
        policy.decide(&[estimate(row, 0.5)], row);
    }
    assert_eq!((policy.decisions().count(), policy.decisions_dropped()), (11, 89));
}

#[test]
fn impossible_settings_are_refused() {
    let refused = |change: fn(&mut PolicyConfig)| {
        let mut config = PolicyConfig::new(8);
        change(&mut config);
        Policy::new(config).unwrap_err().to_string()
    };
    assert!(refused(|c| c.workers = 0).contains("workers"));
    assert!(refused(|c| c.hot_keys_max = 5_000).contains("4,096"));
    assert!(refused(|c| c.given = (0..300).collect()).contains("name fewer"));
    assert!(refused(|c| c.salts = Salts::Fixed(0)).contains("1 to 1,024"));
    assert!(refused(|c| c.salts = Salts::Fixed(1_025)).contains("1 to 1,024"));
    assert!(refused(|c| c.thresholds.speed_share = f64::NAN).contains("threshold"));
    assert!(refused(|c| c.thresholds.demote_ratio = 1.0).contains("ratio"));
}
