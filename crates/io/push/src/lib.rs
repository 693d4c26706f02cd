//! The router's side of the session with its controllers.
