//! One whole list, page by page.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use continuum_fleet::kubernetes::Limits;

use super::client::{Page, Reader, Resource};
use crate::{
    error::{Error, peer_text},
    limits::{LEAN_BYTES, MAX_EVENT_BYTES, OBJECT_BYTES},
    source::Lost,
};

/// What is kept of an object until the whole list has been read.
pub(super) trait Kept: Sized {
    /// The object as the API server has it, as far as it is read.
    type Object: DeserializeOwned + Into<Self>;

    /// Memory that it takes, about.
    fn bytes(&self) -> usize;

    /// What stays of it where there is no room for all; `None`: nothing.
    fn lean(self) -> Option<Self>;
}

/// A list that has been read to its end.
pub(super) struct Listed<T> {
    pub(super) items: Vec<T>,
    /// Where a watch goes on from.
    pub(super) version: String,
}

/// Reads a list. A page is read, converted and dropped before the next one is asked for. Whatever its objects hold, the
/// list takes no more memory than the limits say.
pub(super) async fn list<T: Kept>(
    reader: &Reader,
    resource: Resource,
    selector: Option<&str>,
    limits: Limits,
    lost: &mut Lost,
) -> Result<Listed<T>, Error> {
    let most = limits.resources;
    let mut room = room(resource, limits);
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
            } else if let Ok(object) = serde_json::from_str::<T::Object>(raw.get()) {
                let item: T = object.into();
                let bytes = item.bytes();
                let item = if bytes <= room {
                    room = room.saturating_sub(bytes);
                    Some(item)
                } else {
                    item.lean().filter(|lean| lean.bytes() <= LEAN_BYTES)
                };
                match item {
                    Some(item) => listed.items.push(item),
                    None => lost.over_capacity += 1,
                }
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

/// Bytes that there are for the objects of a list.
fn room(resource: Resource, limits: Limits) -> usize {
    match resource {
        Resource::Metadata => limits.bytes,
        Resource::Slices | Resource::Pods => {
            limits.resources.saturating_mul(OBJECT_BYTES).max(MAX_EVENT_BYTES)
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
