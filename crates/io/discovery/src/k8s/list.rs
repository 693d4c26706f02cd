//! One whole list, page by page.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::client::{Page, Reader, Resource};
use crate::{
    error::{Error, peer_text},
    source::Lost,
};

/// A list that has been read to its end.
pub(super) struct Listed<T> {
    pub(super) items: Vec<T>,
    /// Where a watch goes on from.
    pub(super) version: String,
}

/// Reads a list. A page is read, converted and dropped before the next one is asked for.
pub(super) async fn list<T: DeserializeOwned>(
    reader: &Reader,
    resource: Resource,
    selector: Option<&str>,
    most: usize,
    lost: &mut Lost,
) -> Result<Listed<T>, Error> {
    let mut listed = Listed {
        items: Vec::new(),
        version: String::new(),
    };
    let (mut limit, mut token) = (resource.page(), None::<String>);
    loop {
        let page = match reader.page(resource, selector, limit, token.as_deref()).await? {
            Page::Whole(page) => page,
            Page::TooLarge if limit > 1 => {
                limit /= 2;
                continue;
            }
            Page::TooLarge => {
                return Err(Error::TooLarge {
                    resource: resource.plural(),
                });
            }
        };
        let page: RawPage<'_> = serde_json::from_slice(&page).map_err(|error| Error::Garbled {
            resource: resource.plural(),
            why: peer_text(&error.to_string()),
        })?;
        if listed.version.is_empty() {
            listed.version = page.metadata.resource_version;
        }
        token = page.metadata.r#continue.filter(|token| !token.is_empty());
        for raw in page.items.unwrap_or_default() {
            if listed.items.len() >= most {
                lost.over_capacity += 1;
            } else if let Ok(item) = serde_json::from_str(raw.get()) {
                listed.items.push(item);
            } else {
                lost.malformed += 1;
            }
        }
        if listed.items.len() >= most && token.is_some() {
            // The watch starts from the version of the first page, so the rest need not be read.
            lost.over_capacity += page.metadata.remaining_item_count.unwrap_or(1).max(1);
            return Ok(listed);
        }
        if token.is_none() {
            return Ok(listed);
        }
    }
}

#[derive(Deserialize)]
struct RawPage<'a> {
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(default)]
    r#continue: Option<String>,
    #[serde(default)]
    remaining_item_count: Option<u64>,
}
