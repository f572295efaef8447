//! Dot paths (`next_action.action`) into JSON objects.

use serde_json::{Map, Value};

/// The value at a dot path of an object (`next_action.action`); a key that contains dots itself is found too.
pub fn at<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    at(object.get(head)?.as_object()?, rest)
}

/// Sets the value at a dot path and makes missing parents. Gives false when a parent is not an object.
pub fn put(object: &mut Map<String, Value>, path: &str, value: Value) -> bool {
    match path.split_once('.') {
        _ if object.contains_key(path) => {
            object.insert(path.to_owned(), value);
            true
        }
        None => {
            object.insert(path.to_owned(), value);
            true
        }
        Some((head, rest)) => object
            .entry(head)
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()
            .is_some_and(|child| put(child, rest, value)),
    }
}
