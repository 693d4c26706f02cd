//! The scalars of the configuration: how each is written, read and shown.
//!
//! A type here is strict when read, so that nobody asks again whether an address has a port. Fields whose
//! type is foreign (durations, sizes, networks) name a module or a schema marker of this file instead.

mod address;
pub mod duration;
mod secret;
pub mod size;

pub use address::{BackendUrl, BindAddress, Endpoint, Scheme, TcpEndpoint, UrlError};
pub use secret::{KeyFile, MASK, Secret, TokenHash};

pub(crate) use address::{BackendUrlText, BindAddressText, EndpointText, SocketText, TcpEndpointText};
pub(crate) use duration::DurationText;
pub(crate) use secret::TokenHashText;
pub(crate) use size::SizeText;

/// Declares a type that stands for a text form in the schema: a string with a `format` of ours, a pattern
/// for editors and an example that the parser falls back on where it has to go on after an error.
macro_rules! text_form {
    ($(#[$doc:meta])* $name:ident, $title:literal, $format:literal, $pattern:literal, $example:literal) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $title.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "format": $format,
                    "pattern": $pattern,
                    "examples": [$example],
                })
            }
        }
    };
}
pub(crate) use text_form;

text_form! {
    /// An IPv4 or IPv6 network.
    CidrText, "network", "cidr", "^[0-9a-fA-F.:]+/[0-9]{1,3}$", "10.0.0.0/8"
}
