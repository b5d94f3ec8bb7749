//! The calls, from the document that `/openapi.json` is.

use serde_json::{Map, Value};

use super::source::Source;
use crate::text::{block, cell, code};

pub(super) fn pages(openapi: &Value) -> Vec<Source> {
    let mut list = format!(
        "# API\n\n{} Every call, field, status and code is also in [/openapi.json](/openapi.json) (OpenAPI 3.1), for client generators and the like.\n",
        text(&openapi["info"]["description"])
    );
    let mut pages = Vec::new();
    for tag in array(&openapi["tags"]) {
        let (name, about) = (text(&tag["name"]), text(&tag["description"]));
        list.push_str(&format!("\n## {name}\n\n{about}\n\n| Call | Purpose |\n|---|---|\n"));
        let mut page = format!("# API: {name}\n\n{about}\n");
        for (path, item) in object(&openapi["paths"]) {
            for (method, operation) in object(item) {
                if !array(&operation["tags"]).any(|known| known == name) {
                    continue;
                }
                let call = format!("{} {path}", method.to_ascii_uppercase());
                let summary = text(&operation["summary"]);
                list.push_str(&format!("| `{call}` | [{}](/docs/api/{name}) |\n", cell(summary)));
                page.push_str(&described(&call, operation, openapi));
            }
        }
        pages.push(Source::new(format!("api/{name}"), format!("API: {name}"), page));
    }
    let mut schemas = "# API: bodies\n\nRequests must match these schemas. Responses may get new fields: ignore fields that you do not know.\n".to_owned();
    for (name, schema) in object(&openapi["components"]["schemas"]) {
        if schema["properties"].is_object() {
            schemas.push_str(&format!("\n## {name}\n\n{}", fields(schema)));
        }
    }
    list.push_str("\n[All bodies](/docs/api/bodies)\n");
    let mut all = vec![Source::new("api", "API", list).in_part("Use")];
    all.append(&mut pages);
    all.push(Source::new("api/bodies", "API: bodies", schemas));
    all
}

fn described(call: &str, operation: &Value, openapi: &Value) -> String {
    let mut page = format!("\n## {call}\n\n{}.", text(&operation["summary"]));
    if let Some(about) = operation["description"].as_str() {
        page.push_str(&format!(" {about}"));
    }
    page.push_str(&format!("\n\nNeeds {}.\n", access(&operation["security"])));
    let parameters: Vec<&Value> = array(&operation["parameters"]).collect();
    if !parameters.is_empty() {
        page.push_str("\n### Parameters\n\n| Name | In | Type | Meaning |\n|---|---|---|---|\n");
        for parameter in parameters {
            page.push_str(&format!(
                "| `{}` | {}{} | {} | {} |\n",
                text(&parameter["name"]),
                text(&parameter["in"]),
                if parameter["required"] == true { ", required" } else { "" },
                kind(&parameter["schema"]),
                cell(text(&parameter["description"])),
            ));
        }
    }
    for (content_type, content) in object(&operation["requestBody"]["content"]) {
        page.push_str(&format!(
            "\n### Body: {content_type}\n\n{} {}\n",
            kind(&content["schema"]),
            text(&operation["requestBody"]["description"])
        ));
        for (_, example) in object(&content["examples"]) {
            let example =
                example["value"].as_str().map_or_else(|| example["value"].to_string(), str::to_owned);
            page.push_str(&format!("\n{}", block("json", &example)));
        }
    }
    page.push_str("\n### Answers\n\n| Status | Body | Meaning |\n|---|---|---|\n");
    for (status, answer) in object(&operation["responses"]) {
        let contents = object(&answer["content"]).filter(|(_, content)| content["schema"].is_object());
        let bodies: Vec<String> = contents.map(|(_, content)| kind(&content["schema"])).collect();
        page.push_str(&format!(
            "| {status} | {} | {} |\n",
            bodies.join(" "),
            with_links(&cell(text(&answer["description"])), openapi)
        ));
    }
    page
}

/// Codes in the words of an answer lead to their pages.
fn with_links(words: &str, openapi: &Value) -> String {
    let codes =
        &openapi["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"];
    array(codes).filter_map(Value::as_str).fold(words.to_owned(), |words, known| {
        words.replace(&format!("`{known}`"), &format!("[`{known}`](/docs/errors/{known})"))
    })
}

fn access(security: &Value) -> String {
    let names: Vec<&str> = array(security)
        .map(|way| match object(way).next() {
            None => "nothing",
            Some((name, _)) if name == "api_key" => "an API key",
            Some((name, _)) if name == "monitor_token" => "a monitor token",
            Some(_) => "the operator's token",
        })
        .collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(" or ") }
}

fn fields(schema: &Value) -> String {
    let required: Vec<&str> = array(&schema["required"]).filter_map(Value::as_str).collect();
    let mut table = "| Field | Type | Always | Meaning |\n|---|---|---|---|\n".to_owned();
    for (name, field) in object(&schema["properties"]) {
        let always = if required.contains(&name.as_str()) { "yes" } else { "no" };
        let about = cell(text(&field["description"]));
        table.push_str(&format!("| `{name}` | {} | {always} | {about} |\n", kind(field)));
    }
    table
}

/// The type of a value in words, with a link where it is a body of its own.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return format!("[{name}](/docs/api/bodies#{})", name.to_lowercase());
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        one => text(one).to_owned(),
    };
    let mut words = vec![types];
    if let Some(items) = schema.get("items") {
        words.push(format!("of {}", kind(items)));
    }
    let known: Vec<&Value> = array(&schema["enum"]).collect();
    // A long list would be the page.
    if (1..=12).contains(&known.len()) {
        let known: Vec<String> = known
            .iter()
            .map(|value| code(&value.as_str().map_or(value.to_string(), str::to_owned)))
            .collect();
        words.push(format!("({})", known.join(", ")));
    }
    let limits = [
        ("minLength", "at least", "characters"),
        ("maxLength", "at most", "characters"),
        ("maxItems", "at most", "items"),
        ("minimum", "from", ""),
        ("maximum", "to", ""),
    ];
    for (keyword, before, after) in limits {
        if let Some(limit) = schema[keyword].as_u64() {
            words.push(format!("{before} {limit} {after}").trim_end().to_owned());
        }
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}
