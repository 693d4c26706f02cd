//! The fields of each section in the order in which they are declared: JSON objects forget it.

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};

use crate::model;

/// The declared order of a section of the schema, by its name in `$defs`; `Config` for the root.
pub(super) fn fields(section: &str) -> &'static [&'static str] {
    macro_rules! order {
        ($($name:ident),+) => {
            match section {
                $(stringify!($name) => declared::<model::$name>(),)+
                _ => &[],
            }
        };
    }
    order!(
        Config,
        Server,
        ServerTls,
        Timeouts,
        Admin,
        Telemetry,
        Logging,
        Backend,
        BackendTls,
        Pool,
        Health,
        TimeoutOverrides,
        DisaggregatedServing,
        Dynamo,
        Discovery,
        Etcd,
        EtcdTls,
        EtcdAuth,
        WatchBackoff,
        FileStore,
        Kubernetes,
        KubernetesModel,
        DiscoveryLimits,
        Load,
        ZmqBroker,
        Shim,
        ShimPool,
        Picker,
        Kv,
        TierWeights,
        ConditionalDisaggregation,
        KvLimits,
        EventBus,
        BusTls,
        BusBroker,
        Controller
    )
}

/// Asks the derived `Deserialize` for its fields, and stops there.
fn declared<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // It ends in an error by design: the fields are what is wanted.
    let _ = T::deserialize(Listen(&mut fields));
    fields
}

struct Listen<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Listen<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("only structs have fields"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("listed"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
