//! The role of a worker: what its component's name says, and what its card says.

use crate::{records::card::Claim, view::Role};

/// Component and card name different roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) component: Role,
    pub(crate) card: Role,
}

/// Decides the role. `card` is `None` while a worker has no base card.
///
/// Component names other than `prefill` and `decode` say nothing; then the card decides alone.
///
/// # Errors
/// The two roles, when component and card contradict each other: such a worker is left out.
pub(crate) fn resolve(component: &str, card: Option<Claim>) -> Result<Role, Conflict> {
    let by_name = of_component(component);
    let by_card = match card {
        Some(Claim::Explicit(role)) => Some(role),
        Some(Claim::OldPrefill) => Some(Role::Prefill),
        Some(Claim::Absent | Claim::Unrecognised) | None => None,
    };
    match (by_name, by_card) {
        (Some(component), Some(card)) if component != card => Err(Conflict { component, card }),
        (Some(role), _) | (None, Some(role)) => Ok(role),
        (None, None) => Ok(match card {
            // A card of before `worker_type` existed belongs to a worker that does everything.
            Some(Claim::Absent) => Role::Aggregated,
            Some(Claim::Unrecognised | Claim::Explicit(_) | Claim::OldPrefill) | None => Role::Unknown,
        }),
    }
}

fn of_component(component: &str) -> Option<Role> {
    [Role::Prefill, Role::Decode]
        .into_iter()
        .find(|role| role.as_str() == component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_and_card_decide_together() {
        use Claim::{Absent, Explicit, OldPrefill, Unrecognised};
        use Role::{Aggregated, Decode, Encode, Prefill, Unknown};
        let conflict = |component, card| Err(Conflict { component, card });
        for (component, card, expected) in [
            ("prefill", None, Ok(Prefill)),
            ("decode", None, Ok(Decode)),
            ("backend", None, Ok(Unknown)),
            ("prefill", Some(Explicit(Prefill)), Ok(Prefill)),
            ("decode", Some(Explicit(Decode)), Ok(Decode)),
            ("decode", Some(Explicit(Prefill)), conflict(Decode, Prefill)),
            ("prefill", Some(Explicit(Decode)), conflict(Prefill, Decode)),
            ("decode", Some(Explicit(Aggregated)), conflict(Decode, Aggregated)),
            ("prefill", Some(Explicit(Encode)), conflict(Prefill, Encode)),
            ("backend", Some(Explicit(Decode)), Ok(Decode)),
            ("backend", Some(Explicit(Aggregated)), Ok(Aggregated)),
            ("backend", Some(Explicit(Encode)), Ok(Encode)),
            ("prefill", Some(Absent), Ok(Prefill)),
            ("backend", Some(Absent), Ok(Aggregated)),
            ("backend", Some(OldPrefill), Ok(Prefill)),
            ("prefill", Some(OldPrefill), Ok(Prefill)),
            ("decode", Some(OldPrefill), conflict(Decode, Prefill)),
            ("decode", Some(Unrecognised), Ok(Decode)),
            ("backend", Some(Unrecognised), Ok(Unknown)),
        ] {
            assert_eq!(resolve(component, card), expected, "{component} {card:?}");
        }
    }
}
