//! Images that models are handed: of which kind the bytes are, and what one costs.

use std::sync::Arc;

use super::canonical::sha256_hex;
use super::words::words;

/// Tokens that are counted for one image before a provider has counted: more than any of them takes for one.
pub const IMAGE_TOKENS: u64 = 5_000;

words! {
    /// A kind of image that models take, by the first bytes of its file; what a name or a server says of it does not count.
    pub enum ImageKind {
        /// PNG.
        Png = "png",
        /// JPEG.
        Jpeg = "jpeg",
        /// GIF.
        Gif = "gif",
        /// WebP.
        Webp = "webp",
    }
}

impl ImageKind {
    /// The kind of these bytes; `None` = it is none of them.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP".as_slice());
        match bytes {
            _ if bytes.starts_with(b"\x89PNG\r\n\x1a\n") => Some(Self::Png),
            _ if bytes.starts_with(b"\xff\xd8\xff") => Some(Self::Jpeg),
            _ if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") => Some(Self::Gif),
            _ if webp => Some(Self::Webp),
            _ => None,
        }
    }

    /// `image/png`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

/// One image.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// What it is.
    pub kind: ImageKind,
    /// Its file.
    pub bytes: Arc<[u8]>,
    /// Over its file.
    pub sha256: String,
}

impl Image {
    /// Takes a file; `None` = it is no image that models take.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Some(Self { kind: ImageKind::of(bytes)?, bytes: bytes.into(), sha256: sha256_hex(bytes) })
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes, sha256 {}", self.kind.media_type(), self.bytes.len(), self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_first_bytes_and_by_nothing_else() {
        for (bytes, kind) in [
            (b"\x89PNG\r\n\x1a\nrest".as_slice(), Some(ImageKind::Png)),
            (b"\xff\xd8\xff\xe0", Some(ImageKind::Jpeg)),
            (b"GIF89a..", Some(ImageKind::Gif)),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", Some(ImageKind::Webp)),
            (b"RIFF\x01\x02\x03\x04WAVE", None),
            (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
            (b"%PDF-1.7", None),
            (b"\x89PNG", None),
            (b"", None),
        ] {
            assert_eq!(ImageKind::of(bytes), kind, "{bytes:?}");
        }
    }
}
