//! What a job says about time, validated.

use std::time::Duration;

use arrow::datatypes::{DataType, TimeUnit};

use super::{EventTime, JobBuilder};
use crate::column::find_column;
use crate::error::ConfigError;
use crate::time::clock::Clock;
use crate::time::event_time::{Unit, limits};
use crate::time::window::{Window, Windows};

/// What [`JobBuilder`] makes of all that has to do with time.
#[derive(Debug, Default)]
pub(super) struct TimeParts {
    pub(super) time: Option<EventTime>,
    pub(super) windows: Option<Windows>,
    pub(super) clock: Option<Clock>,
    pub(super) bound_type: Option<DataType>,
}

impl JobBuilder {
    /// What goes by the clock, or by the distance of inputs.
    pub(super) fn validated_pace(&self, has_event_time: bool) -> Result<(), ConfigError> {
        if self.emit_every == Some(Duration::ZERO) {
            return Err(ConfigError::OutOfRange {
                what: "interval of early results",
                found: "0".into(),
                expected: "longer than 0".into(),
            });
        }
        if self.alignment.is_some() && !has_event_time {
            return Err(ConfigError::Inconsistent(
                "alignment keeps inputs together in event time, which the job does not use; add \
                 windows of event time"
                    .into(),
            ));
        }
        Ok(())
    }

    fn processing_time(&self) -> Result<TimeParts, ConfigError> {
        if self.time.is_some() || self.allowed_lateness > Duration::ZERO {
            return Err(ConfigError::Inconsistent(
                "windows of processing time go by the clock, and no row is late; leave event time and \
                 allowed lateness out"
                    .into(),
            ));
        }
        Ok(TimeParts {
            time: None,
            windows: Windows::new(self.window, Unit::Millisecond, (i64::MIN, i64::MAX))?,
            clock: Some(self.clock.clone().unwrap_or_else(Clock::system)),
            bound_type: Some(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
        })
    }

    pub(super) fn validated_time(&self) -> Result<TimeParts, ConfigError> {
        if matches!(self.window, Window::ProcessingTime { .. }) {
            return self.processing_time();
        }
        let Some(name) = &self.time else {
            if self.window == Window::None {
                return Ok(TimeParts::default());
            }
            return Err(ConfigError::Inconsistent(
                "a window needs an event-time column; name one (--time COL)".into(),
            ));
        };
        let column = find_column(&self.schema, name, "time")?;
        let data_type = self.schema.field(column).data_type();
        let unit = Unit::of(data_type, self.time_unit).ok_or_else(|| ConfigError::WrongType {
            use_: "event time".into(),
            column: name.clone(),
            found: data_type.to_string(),
            expected: "it must be a timestamp, a date, or an integer of up to 63 bits".into(),
        })?;
        let lateness = unit.at_least(self.allowed_lateness);
        let windows = Windows::new(self.window, unit, limits(data_type))?
            .map(|windows| windows.allow_lateness(lateness))
            .transpose()?;
        let out_of_orderness = unit.at_least(self.out_of_orderness);
        Ok(TimeParts {
            time: Some(EventTime { column, unit, out_of_orderness }),
            bound_type: windows.is_some().then(|| data_type.clone()),
            windows,
            clock: None,
        })
    }
}
