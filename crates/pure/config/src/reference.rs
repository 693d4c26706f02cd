//! The users' reference of the configuration, as Markdown, made from the schema.
