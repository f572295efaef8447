//! Images of the issue's body and of trusted remarks: loaded once, when the briefing is frozen, for models that take images.

use super::drafting::Drafting;
use super::heard::{AllHeard, JudgedRemark};
use super::source::Source;
use crate::domain::briefing::{BriefedImage, BriefedText, Fate};
use crate::domain::image::Image;
use crate::domain::refusal::Refusal;
use crate::domain::remark::Standing;
use crate::domain::shown_markdown::{image_addresses, image_name};
use crate::domain::stop::StopDetail;
use crate::github::{Client, Rendered, TextOf};
use crate::repository::context::RepositoryContext;

/// A text that may hold images, and whose they are.
pub struct Pictured {
    id: String,
    of: TextOf,
    login: Option<String>,
    standing: Option<Standing>,
    addresses: Vec<String>,
}

/// The texts whose images may be handed over: the body, whoever wrote it, and what trusted people say in their own words.
pub fn pictured(source: &Source<'_>, number: u64, heard: &AllHeard) -> Vec<Pictured> {
    if source.images.is_empty() {
        return Vec::new();
    }
    let body = Pictured {
        id: format!("issue-{}", source.issue.key),
        of: TextOf::Issue(number),
        login: source.issue.author.clone(),
        standing: None,
        addresses: image_addresses(&source.issue.body),
    };
    let trusted =
        |heard: &&JudgedRemark| heard.left_out.is_none() && heard.judged.standing == Standing::Trusted;
    let in_threads = heard.threads.iter().flat_map(|thread| &thread.comments);
    let remarks = heard.remarks.iter().chain(in_threads).filter(trusted).map(|one| Pictured {
        id: one.remark.id.to_string(),
        of: TextOf::Remark(one.remark.id, heard.pull),
        login: one.remark.login.clone(),
        standing: Some(one.judged.standing),
        addresses: image_addresses(&one.remark.text),
    });
    std::iter::once(body).chain(remarks).filter(|one| !one.addresses.is_empty()).collect()
}

/// Loads them, within the limits of the configuration, and notes what became of each.
///
/// # Errors
/// What was loaded cannot be kept.
pub async fn read(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    pictured: Vec<Pictured>,
    (github, context): (&Client, &RepositoryContext),
) -> Result<Vec<BriefedImage>, Refusal> {
    let rules = &context.config.conversation;
    let mut images: Vec<BriefedImage> = Vec::new();
    for text in pictured {
        let rendered = match images.len() < rules.max_images {
            // An image that cannot be had is no reason not to begin.
            true => github.rendered(&context.repo, text.of).await.unwrap_or_default(),
            false => Rendered::default(),
        };
        for (at, address) in text.addresses.iter().enumerate() {
            let id = format!("{}/image-{}", text.id, at + 1);
            let found = match github.attachment_link(address, &rendered) {
                _ if images.len() >= rules.max_images => Err("too_many"),
                Err(why) => Err(why.as_str()),
                Ok(link) => {
                    let bytes = github.attachment(&link, rules.max_image_bytes).await?;
                    bytes.map_err(|why| why.as_str()).and_then(|bytes| taken(&bytes, source))
                }
            };
            draft.note(noted(&text, &id, address, &found));
            let Ok(image) = found else { continue };
            let path = format!("briefing/images/{}.{}", images.len() + 1, image.kind);
            let Some(blobs) = &source.blobs else { continue };
            let file = blobs.put(&path, &image.bytes).map_err(|error| {
                Refusal::new(StopDetail::OutputWriteFailed, format!("An image cannot be kept: {error}."))
            })?;
            let (name, media_type) = (image_name(address), image.kind.media_type().to_owned());
            images.push(BriefedImage { id, name, media_type, file });
        }
    }
    Ok(images)
}

/// The image in a file, if models are handed such ones. What only some of them take is left out for all: they are told of the same
/// images, by numbers.
fn taken(bytes: &[u8], source: &Source<'_>) -> Result<Image, &'static str> {
    let image = Image::new(bytes).ok_or("no_image")?;
    if source.images.contains(&image.kind) { Ok(image) } else { Err("kind_not_taken") }
}

fn noted(text: &Pictured, id: &str, address: &str, found: &Result<Image, &'static str>) -> BriefedText {
    let why = found.as_ref().err().map(|why| (*why).to_owned());
    BriefedText {
        kind: "image".to_owned(),
        id: id.to_owned(),
        url: Some(address.to_owned()),
        login: text.login.clone(),
        standing: text.standing,
        permission: None,
        created: None,
        edited: None,
        sha256: found.as_ref().map(|image| image.sha256.clone()).unwrap_or_default(),
        characters: 0,
        fate: if why.is_some() { Fate::LeftOut } else { Fate::Told },
        why,
    }
}
