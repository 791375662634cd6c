use std::time::Duration;

use proptest::prelude::*;

use super::*;

const ALL: (i64, i64) = (i64::MIN, i64::MAX);

fn seconds(n: i64) -> Duration {
    Duration::from_secs(u64::try_from(n).unwrap())
}

fn windows(window: Window) -> Windows {
    Windows::new(window, Unit::Second, ALL).unwrap().unwrap()
}

/// All windows that hold `time`, by going through the starts: start and end.
fn holding(window: Window, time: i64) -> Vec<(i64, i64)> {
    let secs = |duration: Duration| i64::try_from(duration.as_secs()).unwrap();
    let mut found = Vec::new();
    match window {
        Window::None
        | Window::Calendar { .. }
        | Window::ProcessingTime { .. }
        | Window::Session { .. } => {
            unreachable!("not drawn")
        }
        Window::Tumbling { size, offset } => {
            return holding(Window::Hopping { size, slide: size, offset }, time);
        }
        Window::Hopping { size, slide, offset } => {
            let (size, slide, offset) = (secs(size), secs(slide), secs(offset));
            let mut start = (time - offset).div_euclid(slide) * slide + offset;
            while start + size > time {
                found.push((start, start + size));
                start -= slide;
            }
        }
        Window::Cumulate { step, max, offset } => {
            let (step, max, offset) = (secs(step), secs(max), secs(offset));
            let start = (time - offset).div_euclid(max) * max + offset;
            let ends = (1..=max / step).map(|k| start + k * step);
            found.extend(ends.filter(|end| *end > time).map(|end| (start, end)));
        }
    }
    found.sort_by_key(|(_, end)| *end);
    found
}

fn any_window() -> impl Strategy<Value = Window> {
    let small = 1_i64..40;
    (small.clone(), small, 0_i64..100, 0..3).prop_map(|(a, b, offset, kind)| {
        let offset = seconds(offset);
        match kind {
            0 => Window::Tumbling { size: seconds(a), offset },
            1 => Window::Hopping { size: seconds(a), slide: seconds(b), offset },
            _ => Window::Cumulate { step: seconds(a), max: seconds(a * (b % 7 + 1)), offset },
        }
    })
}

proptest! {
    #[test]
    fn a_slice_knows_the_windows_of_its_times(window in any_window(), time in -500_i64..500) {
        let windows = windows(window);
        let expected = holding(window, time);
        match windows.locate(time) {
            Place::OutOfRange => prop_assert!(false, "all windows are within range"),
            Place::Between => prop_assert!(expected.is_empty()),
            Place::In(slice) => {
                prop_assert!(slice.start <= time && time < slice.end);
                let mut ends = vec![slice.first];
                while *ends.last().unwrap() < slice.last {
                    ends.push(windows.end_after(*ends.last().unwrap()));
                }
                let found = ends.iter().map(|end| (windows.start_of(*end), *end));
                prop_assert_eq!(found.collect::<Vec<_>>(), expected);
                // The slice is all of it: its neighbours lie in other windows.
                for inside in [slice.start, slice.end - 1] {
                    prop_assert_eq!(windows.locate(inside), Place::In(slice));
                }
                for outside in [slice.start - 1, slice.end] {
                    prop_assert_ne!(windows.locate(outside), Place::In(slice));
                }
            }
        }
    }

    #[test]
    fn a_row_is_filed_under_the_windows_that_are_open(
        window in any_window(), time in -200_i64..200, behind in -50_i64..300,
    ) {
        let windows = windows(window);
        let watermark = time + behind;
        let open = holding(window, time).into_iter().map(|(_, end)| end);
        let open = open.filter(|end| *end > watermark).collect::<Vec<_>>();
        if let Place::In(slice) = windows.locate(time) {
            let span = windows.span(&slice, watermark);
            let expected = open.first().map(|first| Span::on_time(*first, *open.last().unwrap()));
            prop_assert_eq!(span, expected);
            if let Some(span) = span {
                prop_assert!(span.point >= windows.point_after(watermark));
            }
        }
    }

    #[test]
    fn a_late_row_corrects_the_windows_whose_lateness_lasts(
        window in any_window(), time in -200_i64..200, behind in 0_i64..300, lateness in 1_i64..100,
    ) {
        let windows = windows(window).allow_lateness(lateness).unwrap();
        let watermark = time + behind;
        let ends = holding(window, time).into_iter().map(|(_, end)| end);
        let ends = ends.filter(|end| end + lateness > watermark).collect::<Vec<_>>();
        if let Place::In(slice) = windows.locate(time) {
            let span = windows.span(&slice, watermark);
            prop_assert_eq!(span.is_some(), !ends.is_empty());
            if let Some(span) = span {
                prop_assert_eq!(windows.ends(&span).collect::<Vec<_>>(), ends.clone());
                // It is used after the watermark, when the first window's lateness lasts still, and at the
                // end of a window that has not ended.
                prop_assert!(span.point > watermark && span.point <= ends[0] + lateness);
                prop_assert!(ends.iter().all(|end| *end <= watermark || span.point <= *end));
            }
        }
    }

    #[test]
    fn nothing_wraps_at_the_ends_of_time(window in any_window(), time in any::<i64>()) {
        let windows = windows(window);
        let locatable = (i64::MIN + 400..=i64::MAX - 400).contains(&time);
        prop_assert!(windows.locate(time) != Place::OutOfRange || !locatable);
        prop_assert!(windows.end_after(time) > time || time == i64::MAX);
        for end in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
            let _ = windows.locate(end);
            prop_assert!(windows.point_after(end) >= end);
        }
    }
}

#[test]
fn negative_times_fall_into_the_window_before() {
    let windows = windows(Window::Tumbling { size: seconds(10), offset: seconds(3) });
    let start = |time| match windows.locate(time) {
        Place::In(slice) => Some(slice.start),
        _ => None,
    };
    assert_eq!(start(-1), Some(-7));
    assert_eq!(start(2), Some(-7));
    assert_eq!(start(3), Some(3));
    assert_eq!(start(-8), Some(-17));
    assert_eq!(start(i64::MIN), None);
    assert_eq!(start(i64::MAX), None);
}

#[test]
fn a_window_must_be_whole_units() {
    let new = |window, unit| Windows::new(window, unit, ALL);
    let half = Duration::from_millis(1500);
    let error = new(Window::tumbling(half), Unit::Second).unwrap_err();
    assert!(error.to_string().contains("whole number of seconds"), "{error}");
    assert!(new(Window::tumbling(seconds(3600)), Unit::Day).is_err());
    let error = new(Window::hopping(seconds(3), half), Unit::Second).unwrap_err();
    assert!(error.to_string().contains("window slide"), "{error}");
    let error = new(Window::cumulate(seconds(7), seconds(60)), Unit::Second).unwrap_err();
    assert!(error.to_string().contains("a whole number of steps"), "{error}");
}
