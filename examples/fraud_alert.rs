//! Three declined payments of a card within a minute raise an alert: a keyed process with a list of times as its
//! state, and an event-time timer that forgets a card nothing was heard of for a minute.
//!
//!     cargo run --release --example fraud_alert

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;

use saltmill::arrow::array::AsArray;
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use saltmill::arrow::util::pretty::pretty_format_batches;
use saltmill::process::{Context, Key, KeyRows, KeyedProcess, ListState, ProcessError, Timer};
use saltmill::{Collected, Engine, Job};

const MINUTE: i64 = 60_000;

#[derive(Debug)]
struct ThreeDeclined;

#[derive(Debug, Default)]
struct Card {
    /// Times of the declined payments of the last minute.
    declined: ListState<i64>,
    last: i64,
}
saltmill::keyed_state!(Card { declined, last });

impl KeyedProcess for ThreeDeclined {
    type State = Card;

    fn output(&self) -> Vec<Field> {
        ["first", "third"].map(|name| Field::new(name, DataType::Int64, false)).to_vec()
    }

    fn on_rows(
        &self,
        _: &Key<'_>,
        rows: &KeyRows<'_>,
        card: &mut Card,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        let times = rows.column("ms").as_primitive::<Int64Type>();
        let approved = rows.column("approved").as_boolean();
        for row in rows.rows().filter(|row| !approved.value(*row)) {
            let time = times.value(row);
            card.declined.retain(|earlier| time - earlier < MINUTE);
            card.declined.push(time);
            card.last = time;
            if let [first, .., third] = card.declined[..]
                && card.declined.len() == 3
            {
                ctx.emit((first, third))?;
                card.declined.clear();
            }
            ctx.set_timer(time + MINUTE);
        }
        Ok(())
    }

    fn on_timer(
        &self,
        _: &Key<'_>,
        timer: Timer,
        card: &mut Card,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        if timer.time >= card.last + MINUTE {
            ctx.clear();
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let schema = Schema::new(vec![
        Field::new("card", DataType::Utf8, false),
        Field::new("ms", DataType::Int64, false),
        Field::new("approved", DataType::Boolean, false),
    ]);
    let job = Job::builder(Arc::new(schema)).key(["card"]).event_time("ms").process(ThreeDeclined);
    let alerts = Collected::new();
    let engine = Engine::start(job.build()?, alerts.clone())?;
    let mut appender = engine.ingest()?.appender()?;
    for second in 0..600_i64 {
        let ms = second * 1000;
        appender.append((format!("card-{}", second % 50), ms, second % 10 > 0))?;
        if (300..=340).contains(&second) && second % 20 == 0 {
            appender.append(("stolen", ms, false))?;
        }
        if second % 100 == 0 {
            // Declined six times, but never three times within a minute.
            appender.append(("unlucky", ms, false))?;
        }
    }
    appender.close()?;
    let report = engine.finish()?;
    println!("{}", pretty_format_batches(&alerts.take())?);
    println!("{} payments, {} alerts", report.rows_in, report.rows_out);
    assert_eq!(report.rows_out, 1, "only the stolen card");
    Ok(())
}
