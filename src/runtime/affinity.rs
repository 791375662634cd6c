//! Pinning shards to cores.

use crate::config::Pinning;

/// The core of each shard; empty if shards are not pinned.
pub(crate) fn cores(pinning: &Pinning, shards: usize) -> Vec<usize> {
    match pinning {
        Pinning::Off => Vec::new(),
        Pinning::Cores(cores) if cores.is_empty() => Vec::new(),
        Pinning::Cores(cores) => cores.iter().copied().cycle().take(shards).collect(),
        Pinning::Auto => {
            let available = core_affinity::get_core_ids().unwrap_or_default();
            if available.len() < shards {
                // More shards than cores: a pinned shard could not move away from a busy core.
                return Vec::new();
            }
            available.iter().take(shards).map(|core| core.id).collect()
        }
    }
}

/// Pins this thread to `core`, if the system allows it.
pub(crate) fn pin(core: usize) {
    // A refusal (a container without the right) costs speed, not correctness.
    let _ = core_affinity::set_for_current(core_affinity::CoreId { id: core });
}
