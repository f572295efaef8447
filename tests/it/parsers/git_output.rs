//! What git prints and keeps.

use super::*;

/// Bytes of an object that git keeps.
type Object = (ObjectType, Vec<u8>);

/// A repository with a file, a folder, a link and a submodule, and a worktree of it; what is written for one input is taken
/// away again.
struct Objects {
    _folder: tempfile::TempDir,
    repository: Repository,
    checkout: Checkout,
    worktree: Worktree,
    base: CommitId,
    tree: Oid,
    blob: Oid,
}

impl Objects {
    fn new() -> Self {
        Self::make().unwrap_or_else(|error| panic!("{error}"))
    }

    fn make() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let home = AbsPath::new(folder.path())?.canonical()?;
        let path = home.join("repo");
        let repository = Repository::init(path.as_path())?;
        repository.set_head("refs/heads/main")?;
        let blob = repository.blob(b"one\ntwo\nthree\n")?;
        let link = repository.blob(b"src")?;
        let folder_of = |entries: &[(&str, Oid, i32)]| {
            let mut made = repository.treebuilder(None)?;
            for (name, id, mode) in entries {
                made.insert(name, *id, *mode)?;
            }
            made.write()
        };
        let below = folder_of(&[("lib.rs", blob, 0o100_644)])?;
        let tree =
            folder_of(&[("a.txt", blob, 0o100_644), ("link", link, 0o120_000), ("src", below, 0o040_000)])?;
        let who = git2::Signature::new("Ada", "ada@example.org", &git2::Time::new(0, 0))?;
        let base = repository.commit(
            Some("refs/heads/main"),
            &who,
            &who,
            "base\n",
            &repository.find_tree(tree)?,
            &[],
        )?;
        repository.checkout_head(Some(git2::build::CheckoutBuilder::new().force()))?;
        let environment =
            ["HOME", "PATH"].map(|name| (name.into(), std::env::var_os(name).unwrap_or_default()));
        let program = GitProgram::new(environment, CancellationToken::new());
        let base = CommitId::parse(&base.to_string())?;
        let plan = WorktreePlan {
            root: path.join(".worktrees"),
            name: "issue-1".to_owned(),
            branch: BranchName::parse("feature/issue-1")?,
            base: base.clone(),
            remote: None,
            population: Population::default(),
            elsewhere: None,
        };
        let (checkout, prepared) = wait(async {
            let checkout = Checkout::open(program, &path, false).await?;
            let prepared = checkout.prepare_worktree(&plan).await;
            Ok::<_, Box<dyn std::error::Error>>((checkout, prepared.map_err(|error| error.to_string())?))
        })?;
        let worktree = prepared.worktree;
        Ok(Self { _folder: folder, repository, checkout, worktree, base, tree, blob })
    }

    /// Writes objects as they are, well made or not; what agentd tells of the last one, which is a commit or a tree.
    fn told(&self, objects: impl FnOnce(&dyn Fn(&Object) -> Oid) -> (Option<Oid>, Option<Oid>)) -> usize {
        let made = std::cell::RefCell::new(Vec::new());
        let write = |(kind, bytes): &Object| {
            let odb = self.repository.odb().unwrap_or_else(|error| panic!("{error}"));
            let id = Oid::hash_object(*kind, bytes).unwrap_or_else(|error| panic!("{error}"));
            if !odb.exists(id) {
                odb.write(*kind, bytes).unwrap_or_else(|error| panic!("{error}"));
                made.borrow_mut().push(id);
            }
            id
        };
        let (commit, tree) = objects(&write);
        let inspect: Inspect = Arc::new(|lines: &[(u32, &str)]| {
            lines.iter().take(3).map(|(number, line)| (*number, line.chars().take(20).collect())).collect()
        });
        let tree = tree.map(|tree| tree.to_string());
        let head = commit.and_then(|commit| CommitId::parse(&commit.to_string()).ok());
        let known = [self.base.clone()];
        let told = wait(async {
            let bringing = self
                .worktree
                .outgoing((head.as_ref().unwrap_or(&self.base), tree.as_deref()), &known, (1 << 20, inspect))
                .await
                .map(|bringing| size(&bringing));
            let diff = match &head {
                Some(head) => {
                    self.checkout.diff(&self.base, head, 64 * 1024).await.map(|diff| diff.text.len())
                }
                None => Ok(0),
            };
            [bringing, diff]
        });
        for id in made.into_inner() {
            let name = id.to_string();
            let file = self.repository.path().join("objects").join(&name[..2]).join(&name[2..]);
            std::fs::remove_file(file).unwrap_or_else(|error| panic!("{error}"));
        }
        told.into_iter()
            .map(|told| {
                told.unwrap_or_else(|error| {
                    let error = error.to_string();
                    assert!(!error.contains("panicked"), "{error}");
                    error.len()
                })
            })
            .sum()
    }
}

/// Objects that an agent can have made in its own git directory.
pub fn objects() -> Vec<Parser> {
    let with =
        |name: &'static str, seeds: fn(&Objects) -> Vec<Vec<u8>>, read: fn(&Objects, &[u8]) -> usize| {
            let objects = Objects::new();
            Parser { name, seeds: seeds(&objects), read: Box::new(move |bytes| read(&objects, bytes)) }
        };
    vec![
        with(
            "diffs",
            |_| vec![b"one\n2\nthree\n".to_vec(), b"\xff\xfeo\0n\0e\0".to_vec(), b"a\r\nb".to_vec()],
            |objects, bytes| {
                objects.told(|write| {
                    let blob = write(&(ObjectType::Blob, bytes.to_vec()));
                    let tree = write(&(ObjectType::Tree, entry("100644 a.txt", blob)));
                    (Some(write(&(ObjectType::Commit, commit(tree, &objects.base, "m")))), Some(tree))
                })
            },
        ),
        with(
            "links",
            |_| [&b"src"[..], b"../src/./lib.rs", b"/etc", b""].map(<[u8]>::to_vec).into(),
            |objects, bytes| {
                objects.told(|write| {
                    let link = write(&(ObjectType::Blob, bytes.to_vec()));
                    let around = raw_of(objects, objects.tree);
                    let tree = [entry("120000 a", link), around].concat();
                    (None, Some(write(&(ObjectType::Tree, tree))))
                })
            },
        ),
        with(
            "trees",
            |objects| {
                let odd = |what| entry(what, objects.blob);
                vec![
                    raw_of(objects, objects.tree),
                    odd("160000 vendor"),
                    odd("60000 a.txt"),
                    [odd("60000 a"), odd("100644 a")].concat(),
                ]
            },
            |objects, bytes| {
                objects.told(|write| {
                    let tree = write(&(ObjectType::Tree, bytes.to_vec()));
                    (Some(write(&(ObjectType::Commit, commit(tree, &objects.base, "m")))), Some(tree))
                })
            },
        ),
        with(
            "commits",
            |objects| vec![commit(objects.tree, &objects.base, "subject\n\nbody\n")],
            |objects, bytes| objects.told(|write| (Some(write(&(ObjectType::Commit, bytes.to_vec()))), None)),
        ),
    ]
}

/// The bytes of an object.
fn raw_of(objects: &Objects, id: Oid) -> Vec<u8> {
    let odb = objects.repository.odb().unwrap_or_else(|error| panic!("{error}"));
    odb.read(id).map_or_else(|error| panic!("{error}"), |object| object.data().to_vec())
}

/// An entry of a tree; `what`: mode and name.
fn entry(what: &str, id: Oid) -> Vec<u8> {
    [what.as_bytes(), b"\0", id.as_bytes()].concat()
}

fn commit(tree: Oid, parent: &CommitId, message: &str) -> Vec<u8> {
    let who = "Ada <ada@example.org> 1700000000 +0100";
    format!("tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n{message}").into_bytes()
}

pub fn printed() -> Vec<Parser> {
    let id = "0123456789012345678901234567890123456789";
    let seeds = [
        format!("{id}\trefs/heads/main\n{id}\trefs/heads/feature/issue-1\n"),
        format!(
            "To x\n!\t{id}:refs/heads/feature/issue-1\t[remote rejected] (hook)\n=\ta:refs/heads/b\t[up to date]\nDone\n"
        ),
        "a.bin\0filter\0lfs\0b\0filter\0unset\0".to_owned(),
        "vendor/\0a.txt\0b/c\0".to_owned(),
        format!("100644 {id} 1\ta.txt\x00100644 {id} 2\ta.txt\x00160000 {id} 0\tvendor\0"),
        "submodule.a.b.url\n../x\0submodule.c.path\nc\0".to_owned(),
    ];
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let branch = BranchName::parse("feature/issue-1").unwrap_or_else(|error| panic!("{error}"));
    let heads = [&format!("{id}\n"), "ref: refs/heads/main\n", "gitdir: ../elsewhere\n"];
    let folder = |bytes: &[u8], folder: &Path, name: &str| {
        let file = folder.join(name);
        let around = file.parent().unwrap_or(folder);
        std::fs::create_dir_all(around)
            .and_then(|()| std::fs::write(&file, bytes))
            .unwrap_or_else(|error| panic!("{error}"));
    };
    vec![
        of_text("lists of git", &seeds, move |text| {
            size(&output::heads(text))
                + size(&output::pushed(text, &branch))
                + size(&output::under_lfs(text))
                + size(&output::others(text))
                + size(&output::unmerged(text))
                + size(&output::submodule_entries(text))
                + size(&output::declared(text.as_bytes()))
                + size(&output::submodules(text.as_bytes()))
        }),
        parser(
            "HEAD of a repository in a submodule's folder",
            &heads,
            in_folder("HEAD", move |place| {
                let bytes = std::fs::read(place.join("HEAD")).unwrap_or_default();
                let place = place.join("submodule");
                let read = || AbsPath::new(&place).map_or(0, |place| size(&commit_in(&place)));
                // As the link to the repository, as its HEAD, as a ref of it, and as all of its refs.
                folder(&bytes, &place, ".git");
                let mut made = read();
                std::fs::remove_file(place.join(".git")).unwrap_or_else(|error| panic!("{error}"));
                folder(&bytes, &place, ".git/HEAD");
                made += read();
                folder(b"ref: refs/heads/main\n", &place, ".git/HEAD");
                folder(&bytes, &place, ".git/packed-refs");
                made += read();
                folder(&bytes, &place, ".git/refs/heads/main");
                made += read();
                std::fs::remove_dir_all(place.join(".git")).unwrap_or_else(|error| panic!("{error}"));
                made
            }),
        ),
    ]
}
