//! The page of all limits, written from the `limits.rs` of each crate: constant, value and reason.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// One documented constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// Its value, as the source has it.
    pub value: String,
    /// Its documentation, as one line.
    pub doc: String,
}

/// The page for a checkout whose root is `root`.
///
/// # Errors
/// When a file cannot be read.
pub fn page(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    find(&root.join("crates"), &mut files)?;
    find(&root.join("controller/src"), &mut files)?;
    find(&root.join("router/src"), &mut files)?;
    files.sort();
    let mut page = String::from(
        "# Limits\n\nEvery cap, budget and timer that is built in, from the source files named below. \
         Written by `make generate`.\nSome have a field in the configuration whose default they are: see \
         [configuration](configuration.md).\n",
    );
    for file in files {
        let limits = read(&fs::read_to_string(&file)?);
        if limits.is_empty() {
            continue;
        }
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        page.push_str(&format!(
            "\n## `{shown}`\n\n| limit | value | why |\n|---|---|---|\n"
        ));
        for Limit { name, value, doc } in limits {
            page.push_str(&format!("| `{name}` | `{value}` | {doc} |\n"));
        }
    }
    Ok(page)
}

/// The documented constants of one source file, in its order.
#[must_use]
pub fn read(source: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
            continue;
        }
        let declared = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ")
            .strip_prefix("const ");
        if let Some(declared) = declared.filter(|_| !doc.is_empty()) {
            let mut declared = declared.trim().to_owned();
            while !declared.ends_with(';') {
                let Some(more) = lines.next() else { break };
                declared.push(' ');
                declared.push_str(more.trim());
            }
            if let Some((name, rest)) = declared.split_once(':')
                && let Some((_, value)) = rest.split_once('=')
            {
                limits.push(Limit {
                    name: name.trim().to_owned(),
                    value: value.trim().trim_end_matches(';').replace('|', "\\|"),
                    doc: doc
                        .join(" ")
                        .replace("[`", "`")
                        .replace("`]", "`")
                        .replace('|', "\\|"),
                });
            }
        }
        doc.clear();
    }
    limits
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.file_name().is_some_and(|name| name == "limits.rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_constants_and_nothing_else() {
        let source = "//! Module.\n\n/// Longest key,\n/// see [`OTHER`] | more.\npub const KEY: usize = 4 * 1024;\n\
                      /// Two lines.\npub(crate) const LONG: &[u8] =\n    b\"x\";\nconst BARE: u8 = 1;\n\
                      /// A type.\npub struct Limits;\n";
        let limit = |name: &str, value: &str, doc: &str| Limit {
            name: name.to_owned(),
            value: value.to_owned(),
            doc: doc.to_owned(),
        };
        assert_eq!(
            read(source),
            [
                limit("KEY", "4 * 1024", "Longest key, see `OTHER` \\| more."),
                limit("LONG", "b\"x\"", "Two lines."),
            ]
        );
    }
}
