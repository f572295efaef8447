//! Enums of words: each variant with its word, and from that the list of all, the word of one, and the one of a word.

/// Declares an enum of words.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$word_about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$word_about])* $variant,)+
        }

        impl $name {
            /// Every one, in the order of their declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Its word in JSON, definitions, configuration and messages.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The one with exactly this word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Lets an enum of words stand in a definition's file; its JSON Schema has this name and says this of the key.
macro_rules! words_of_a_format {
    ($name:ident, $schema:literal, $about:literal) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = String::deserialize(from)?;
                let unknown = || {
                    let known = Self::ALL.map(Self::as_str).join(", ");
                    serde::de::Error::custom(format!("unknown word `{word}`; known here: {known}"))
                };
                Self::parse(&word).ok_or_else(unknown)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $schema.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": Self::ALL.map(Self::as_str), "description": $about})
            }
        }
    };
}

pub(crate) use {words, words_of_a_format};
