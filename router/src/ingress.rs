//! What happens to a request before a worker is chosen, and to an answer before the client sees it.
//!
//! Pure functions over `http` types, in the order in which a request meets them:
//!
//! 1. [`routes`]: which route is it?
//! 2. [`strip::accept`]: client pins leave the head, on every route; what the client asked to be told.
//! 3. [`body`]: one look over the JSON bytes: model, stream, prompt size, and what must be edited out.
//! 4. [`edit`]: the outbound body; the same bytes when nothing has to change.
//! 5. [`strip::outbound`]: the head for one backend, then [`pin_headers`].
//! 6. [`answer`]: the head of the answer, and the model name put back where it was mapped.
//! 7. [`rescue`]: any [`crate::error::Error`] as an OpenAI error answer or stream event.
//!
//! [`models`] builds `/v1/models`. There is no socket, no clock and no routing decision in here.

pub mod answer;
pub mod body;
pub mod edit;
mod json;
pub mod limits;
pub mod models;
pub mod pin_headers;
pub mod rescue;
pub mod routes;
pub mod strip;
pub mod token_data;
