//! Every function that the library has, asked for over columns it is defined for, and what the oracle is
//! to compute for it.

use arrow::datatypes::{DataType, Field};
use saltmill::Aggregate;
use saltmill::aggregate::{Filter, Fraction, Function};

use crate::oracle::func::applies;
use crate::oracle::rng::Rng;
use crate::oracle::value::plain_type;
use crate::oracle::{Ask, Func};

/// Quantiles whose rank is the same however it is computed.
const QUANTILES: &[f64] = &[0.0, 0.125, 0.25, 0.5, 0.75, 1.0];

/// What the oracle computes for `function`; a function that it does not know is an error here, so that none
/// goes without a test.
fn func_of(function: Function) -> Func {
    match function {
        Function::Count => Func::Count,
        Function::CountDistinct => Func::Distinct,
        Function::ApproxDistinct => Func::ApproxDistinct,
        Function::Sum => Func::Sum,
        Function::SumDecimal => Func::SumDecimal,
        Function::Min | Function::AnyValue | Function::BoolAnd => Func::Min,
        Function::Max | Function::BoolOr => Func::Max,
        Function::Avg => Func::Avg,
        Function::First | Function::ArgMin => Func::ArgMin,
        Function::Last | Function::ArgMax => Func::ArgMax,
        Function::BitAnd => Func::BitAnd,
        Function::BitOr => Func::BitOr,
        Function::BitXor => Func::BitXor,
        Function::VarSamp | Function::CovarSamp => Func::Variance { sample: true },
        Function::VarPop | Function::CovarPop => Func::Variance { sample: false },
        Function::StddevSamp => Func::Deviation { sample: true },
        Function::StddevPop => Func::Deviation { sample: false },
        Function::Corr => Func::Correlation,
        Function::ApproxQuantile(q) => Func::Quantile(q.get()),
        Function::Median => Func::Quantile(0.5),
        Function::TopN(n) => Func::Top(usize::try_from(n).expect("small")),
        Function::BottomN(n) => Func::Bottom(usize::try_from(n).expect("small")),
        Function::Mode => Func::Mode,
        other => panic!("tests/oracle does not know {other}: teach it"),
    }
}

/// Fields of a job, which of them are values, and which is the event time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) fields: &'a [Field],
    pub(crate) values: &'a [usize],
    pub(crate) time: Option<usize>,
}

impl Columns<'_> {
    fn plain(&self, column: usize) -> &DataType {
        plain_type(self.fields[column].data_type())
    }

    /// Asks for `function` over `column` and, if it takes several, others chosen by `rng`; none if it is
    /// not defined for the column, or nothing suits it.
    pub(crate) fn ask(
        &self,
        function: Function,
        column: usize,
        rng: &mut Rng,
    ) -> Option<(Aggregate, Ask)> {
        let function = match function {
            Function::ApproxQuantile(_) => {
                Function::ApproxQuantile(Fraction::new(*rng.pick(QUANTILES)))
            }
            Function::TopN(_) => Function::TopN(*rng.pick(&[1, 2, 5])),
            Function::BottomN(_) => Function::BottomN(*rng.pick(&[1, 2, 5])),
            other => other,
        };
        let func = func_of(function);
        let is_bool = *self.plain(column) == DataType::Boolean;
        let fits = match function {
            Function::BoolAnd | Function::BoolOr => is_bool,
            _ => applies(func, self.plain(column)),
        };
        if !fits {
            return None;
        }
        let mut columns = vec![column];
        let numbers = self.values.iter().filter(|column| applies(func, self.plain(**column)));
        let numbers = numbers.copied().collect::<Vec<_>>();
        match function {
            Function::First | Function::Last => columns.push(self.time?),
            Function::ArgMin | Function::ArgMax => columns.push(*rng.pick(self.values)),
            Function::Corr | Function::CovarSamp | Function::CovarPop => {
                columns.push(*rng.pick(&numbers));
            }
            Function::CountDistinct
            | Function::ApproxDistinct
            | Function::TopN(_)
            | Function::BottomN(_)
                if rng.percent(40) =>
            {
                columns.push(*rng.pick(self.values));
            }
            _ => {}
        }
        let written = match function {
            Function::First | Function::Last => &columns[..1],
            _ => &columns[..],
        };
        let names = written.iter().map(|column| self.fields[*column].name().clone());
        let aggregate = Aggregate::over(function, names);
        Some(self.filtered(aggregate, Ask::new(func, columns), rng))
    }

    /// Perhaps only of the rows in which some whole number is greater than 0.
    fn filtered(&self, aggregate: Aggregate, ask: Ask, rng: &mut Rng) -> (Aggregate, Ask) {
        let whole = |column: &&usize| self.fields[**column].data_type().is_integer();
        let whole = self.values.iter().filter(whole).copied().collect::<Vec<_>>();
        if whole.is_empty() || !rng.percent(20) {
            return (aggregate, ask);
        }
        let column = *rng.pick(&whole);
        let filter = Filter::parse(&format!("\"{}\" > 0", self.fields[column].name()));
        let aggregate = aggregate.filter(filter.expect("it is well written"));
        (aggregate, Ask { positive: Some(column), ..ask })
    }
}
