//! The report as JSON.

use super::Context;
use crate::cli::json::Json;
use crate::diagnose::advice::Step;
use crate::diagnose::profile::TopKey;
use crate::diagnose::windows::Windows;
use crate::runtime::report::KeyValue;
use crate::skew::imbalance::Imbalance;

/// Version of the layout.
const VERSION: u32 = 1;

/// Windows that are hot for one key, listed.
const HOT_WINDOWS_LISTED: usize = 100;

/// The report.
pub(super) fn report(context: &Context<'_>) -> String {
    let diagnosis = context.diagnosis;
    let (profile, findings) = (&diagnosis.profile, &diagnosis.findings);
    let counted = &profile.counted;
    let mut faces = Json::array();
    for face in &findings.faces {
        faces.element_text(face.id());
    }
    let mut json = Json::object();
    json.int("version", VERSION)
        .int("rows", counted.rows)
        .int("keys", counted.keys)
        .raw("exact", bool_text(counted.exact))
        .raw("complete", bool_text(!context.counts_are_part))
        .float("effective_keys", counted.effective_keys)
        .text("assign", context.options.assignment.name())
        .int("parallelism", profile.config.parallelism)
        .int("max_parallelism", profile.config.max_parallelism)
        .member("faces", &faces)
        .text("summary", &diagnosis.advice.summary)
        .member("imbalance", &imbalance(findings.imbalance))
        .member("imbalance_without_hot_keys", &imbalance(findings.without_hot))
        .member("subtasks", &subtasks(context))
        .member("top_keys", &keys(context, profile.top.iter().take(context.options.top)))
        .member("hot_keys", &keys(context, findings.hot.iter()))
        .member("default_looking_keys", &keys(context, findings.defaults.iter()))
        .member("collisions", &collisions(context))
        .member("predictions", &predictions(context))
        .member("recommendations", &steps(&diagnosis.advice.steps))
        .member("anti_patterns", &steps(&diagnosis.advice.anti_patterns));
    match diagnosis.advice.salts {
        Some(salts) => json.int("salts", salts),
        None => json.raw("salts", "null"),
    };
    match &diagnosis.windows {
        Some(all) => json.member("windows", &windows(context, all)),
        None => json.raw("windows", "null"),
    };
    let mut left_out = Json::object();
    for (what, rows) in context.rows_left_out() {
        left_out.int(&what, rows);
    }
    json.member("rows_left_out", &left_out);
    format!("{}\n", json.finish())
}

fn bool_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn imbalance(imbalance: Imbalance) -> Json {
    let mut json = Json::object();
    json.float("max_over_mean", imbalance.max_over_mean).float("cov", imbalance.cov);
    json
}

fn subtasks(context: &Context<'_>) -> Json {
    let findings = &context.diagnosis.findings;
    let mut all = Json::array();
    for (subtask, (rows, keys)) in findings.loads.iter().zip(&findings.keys).enumerate() {
        let mut json = Json::object();
        json.int("subtask", subtask as u64).int("rows", *rows).int("keys", *keys);
        all.element(&json);
    }
    all
}

fn key_json(key: &[KeyValue]) -> Json {
    let mut json = Json::array();
    for value in key {
        json.element_key(value);
    }
    json
}

fn keys<'a>(context: &Context<'_>, keys: impl Iterator<Item = &'a TopKey>) -> Json {
    let profile = &context.diagnosis.profile;
    let mut all = Json::array();
    for key in keys {
        let mut json = Json::object();
        json.member("key", &key_json(&key.key))
            .int("rows", key.rows)
            .float("share", profile.share(key.rows))
            .float("share_low", profile.share(key.rows_low))
            .float("share_high", profile.share(key.rows_high))
            .int("key_group", key.group)
            .int("subtask", key.subtask);
        all.element(&json);
    }
    all
}

fn collisions(context: &Context<'_>) -> Json {
    let mut all = Json::array();
    for collision in &context.diagnosis.findings.collisions {
        let mut json = Json::object();
        json.int("subtask", collision.subtask)
            .float("of_fair_share", collision.of_fair_share)
            .member("keys", &keys(context, collision.keys.iter()));
        all.element(&json);
    }
    all
}

fn predictions(context: &Context<'_>) -> Json {
    let mut all = Json::array();
    for prediction in &context.diagnosis.predictions {
        let mut loads = Json::array();
        for rows in &prediction.loads {
            loads.element_raw(&rows.to_string());
        }
        let mut json = Json::object();
        json.text("cure", prediction.cure.id())
            .text("name", &prediction.cure.name())
            .float("max_over_mean", prediction.imbalance.max_over_mean)
            .float("cov", prediction.imbalance.cov)
            .float("speed_up", prediction.speed_up)
            .member("rows", &loads);
        if let Some((low, high)) = prediction.spread {
            json.float("max_over_mean_low", low).float("max_over_mean_high", high);
        }
        all.element(&json);
    }
    all
}

fn steps(steps: &[Step]) -> Json {
    let mut all = Json::array();
    for step in steps {
        let mut json = Json::object();
        json.text("title", &step.title).text("text", &step.text);
        all.element(&json);
    }
    all
}

fn windows(context: &Context<'_>, windows: &Windows) -> Json {
    let mut hot = Json::array();
    for window in context.diagnosis.findings.hot_windows.iter().take(HOT_WINDOWS_LISTED) {
        let mut json = Json::object();
        json.text("window", &context.time_text(window.start))
            .member("key", &key_json(&window.key))
            .float("share", window.share)
            .float("share_overall", window.share_overall)
            .float("max_over_mean", window.imbalance.max_over_mean)
            .int("rows", window.rows);
        hot.element(&json);
    }
    let mut json = Json::object();
    json.int("number", windows.windows.len() as u64)
        .int("rows_median", windows.rows_median())
        .int("rows_beyond", windows.rows_beyond)
        .int("hot_number", context.diagnosis.findings.hot_windows.len() as u64)
        .member("hot", &hot);
    if let Some((median, worst)) = windows.max_over_mean() {
        json.float("max_over_mean_median", median)
            .float("max_over_mean_worst", worst.imbalance().max_over_mean)
            .text("worst", &context.time_text(worst.start));
    }
    json
}
