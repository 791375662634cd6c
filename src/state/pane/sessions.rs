//! Sessions of a pane's keys: rows of one key joined to those of the slice of time after it.

use std::ops::Range;

use super::{LOOKUP_ROWS, LOOKUP_STEP, Pane, Scratch};
use crate::aggregate::plan::Plan;

/// How sessions of one slice of time are told from those before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stitch {
    /// Where the least and the largest time of a key's rows stand among the words of the aggregates.
    pub(crate) extent: usize,
    /// Rows of a key whose times differ by less are in one session.
    pub(crate) gap: i64,
    /// No row to come, and none in the slice, lies before this.
    pub(crate) begin: i64,
}

impl Pane {
    /// Least and largest event time of the rows of key `id`, at the words `extent`.
    pub(crate) fn extent(&self, id: u32, extent: usize) -> (i64, i64) {
        let at = self.table.width() + extent;
        let row = self.table.row(id);
        (row[at].cast_signed(), row[at + 1].cast_signed())
    }

    /// Takes the open sessions `before` on into this pane, which holds the keys of a later slice of time,
    /// at most one session each: a session goes on with the key's rows here if they follow closely
    /// enough, stays open if there are none and some may still come, and goes to `closed` otherwise.
    pub(crate) fn continue_sessions(
        &mut self,
        plan: &Plan,
        before: &mut Self,
        closed: &mut Self,
        stitch: Stitch,
        scratch: &mut Scratch,
    ) {
        let len = u32::try_from(before.len()).expect("row ids are 32 bits");
        let (mut over, mut open) = (Vec::new(), Vec::new());
        for start in (0..len).step_by(LOOKUP_ROWS) {
            let ids = start..(start + LOOKUP_STEP).min(len);
            over.clear();
            open.clear();
            for id in ids.clone() {
                let (_, last) = before.extent(id, stitch.extent);
                // Times within a gap of the end of time were rejected.
                let is_over = last.saturating_add(stitch.gap) <= stitch.begin;
                (if is_over { &mut over } else { &mut open }).push(id - start);
            }
            before.table.export_keys(ids.clone(), &mut scratch.keys);
            scratch.ptrs.clear();
            self.table.lookup(plan.isa, &scratch.keys, &open, &mut scratch.ptrs);
            let mut kept = 0;
            for k in 0..open.len() {
                let (_, last) = before.extent(start + open[k], stitch.extent);
                let at = self.table.width() + stitch.extent;
                let rows = self.table.rows_mut().rows(&scratch.ptrs[k..=k]);
                // The end of time if the key is new here.
                let next = rows.state(0, at, 1)[0].cast_signed();
                if next == i64::MAX || next.saturating_sub(last) < stitch.gap {
                    (open[kept], scratch.ptrs[kept]) = (open[k], scratch.ptrs[k]);
                    kept += 1;
                } else {
                    over.push(open[k]);
                }
            }
            scratch.ptrs.truncate(kept);
            self.merge_rows(plan, before, ids.start, &open[..kept], scratch);
            over.sort_unstable();
            scratch.ptrs.clear();
            closed.table.lookup(plan.isa, &scratch.keys, &over, &mut scratch.ptrs);
            closed.merge_rows(plan, before, ids.start, &over, scratch);
        }
    }

    /// Merges the rows `start + selection[k]` of `from` into the rows at `scratch.ptrs`.
    fn merge_rows(
        &mut self,
        plan: &Plan,
        from: &mut Self,
        start: u32,
        selection: &[u32],
        scratch: &mut Scratch,
    ) {
        let ids = selection.iter().map(|k| start + k);
        scratch.from.clear();
        scratch.from.extend(ids.map(|id| from.table.rows_mut().ptr(id)));
        self.merge_looked_up(plan, from, scratch, super::Join::Copy);
    }

    /// The least end of a session among the keys `ids`; the end of time if there are none.
    pub(crate) fn first_session_end(&self, ids: Range<u32>, stitch: Stitch) -> i64 {
        ids.map(|id| self.extent(id, stitch.extent).1.saturating_add(stitch.gap))
            .min()
            .unwrap_or(i64::MAX)
    }
}
