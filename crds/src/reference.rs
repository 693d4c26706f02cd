//! The pages for users that are made from the types.
