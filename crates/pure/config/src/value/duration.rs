//! Durations: a number and a unit (`500ms`, `30s`, `5m`, `1h`).

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

use crate::value::text_form;

text_form! {
    /// A duration.
    DurationText, "duration", "duration", "^[0-9]+(ms|s|m|h)$", "1s"
}

/// What is expected of a duration, for error messages.
pub const FORM: &str = "a number with a unit, such as \"500ms\", \"30s\", \"5m\" or \"1h\"";

/// The longest duration that can be written: a year. Longer is a mistake, and sums must not overflow.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads `500ms`, `30s`, `5m`, `1h`. `None` for anything else and for more than [`LONGEST`].
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return None,
    };
    let duration = Duration::from_millis(number.checked_mul(factor)?);
    (duration <= LONGEST).then_some(duration)
}

/// Writes a duration in the largest unit that divides it.
#[must_use]
pub fn text(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (factor, unit) in [(60 * 60 * 1000, "h"), (60 * 1000, "m"), (1000, "s")] {
        if millis != 0 && millis.is_multiple_of(factor) {
            return format!("{}{unit}", millis / factor);
        }
    }
    if millis == 0 {
        "0s".to_owned()
    } else {
        format!("{millis}ms")
    }
}

/// Serializes a duration field.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(*value))
}

/// Reads a duration field.
///
/// # Errors
/// When the text is not a duration.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| de::Error::custom(format!("expected {FORM}")))
}

/// The same for a field that may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, Duration, FORM, Serializer, de, parse, text};

    /// Serializes an optional duration field.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&text(*value)),
            None => to.serialize_none(),
        }
    }

    /// Reads an optional duration field.
    ///
    /// # Errors
    /// When there is a text and it is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| parse(&text).ok_or_else(|| de::Error::custom(format!("expected {FORM}"))))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (written, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(written), Some(Duration::from_millis(millis)), "{written}");
            assert_eq!(text(Duration::from_millis(millis)), written);
        }
        for wrong in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "99999999999999999999s",
            "9000h",
            "１s",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(text(Duration::from_millis(1_500)), "1500ms");
        assert_eq!(text(Duration::from_secs(90)), "90s");
    }
}
