//! How a table of `agentd.toml` is written down: one line a key, with its type and its published default.

/// Declares a table of `agentd.toml`: each key with its type and its published default.
macro_rules! table {
    (
        $(#[$about:meta])*
        pub struct $name:ident { $($(#[$key_about:meta])* pub $key:ident: $type:ty = $default:expr,)+ }
    ) => {
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$about])*
        pub struct $name {
            $($(#[$key_about])* pub $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }
    };
}
pub(super) use table;
