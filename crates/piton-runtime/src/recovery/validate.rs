//! Holding a checkpoint against its surroundings (C6).

use std::path::{Path, PathBuf};

use piton_types::{PartName, RequiredFile, RequiredProgram};

use super::report::{Area, Severity, ValidationReport};
use super::{Environment, Search, Whole};

/// What stands for and against going on from the checkpoint that was found.
pub async fn validate(search: &Search, environment: &dyn Environment) -> ValidationReport {
    let mut report = ValidationReport {
        checkpoint: search.whole.as_ref().map(|whole| whole.checkpoint.clone()),
        findings: Vec::new(),
        checks: 1,
    };
    for damaged in &search.damaged {
        let place = damaged.seq.map_or_else(|| "the end of the log".to_owned(), |seq| format!("entry {seq}"));
        report.add(Area::Integrity, Severity::Warning, format!("{place} was passed over: {}", damaged.detail));
    }
    let Some(whole) = &search.whole else {
        if !search.damaged.is_empty() {
            report.add(Area::Integrity, Severity::Error, "no checkpoint of the run is whole");
        }
        return report;
    };
    structure(whole, &mut report);
    surroundings(whole, environment, &mut report).await;
    report.findings.sort_by_key(|finding| finding.area);
    report
}

fn structure(whole: &Whole, report: &mut ValidationReport) {
    let recovery = whole.record.as_ref().map(|record| &record.recovery);
    for needed in recovery.iter().flat_map(|recovery| &recovery.required_context) {
        report.checks += 1;
        if !whole.entry.parts.contains_key(&PartName(needed.clone())) {
            report.add(
                Area::Structure,
                Severity::Error,
                format!("it needs the part {needed:?}, which it doesn't have"),
            );
        }
    }
    for (name, part) in &whole.entry.parts {
        report.checks += 1;
        // Of the parts that are ours this version knows version 1; others belong to the embedder.
        if part.schema.starts_with("piton.") && part.version != 1 {
            let message =
                format!("the part {:?} is {} {}, and version 1 is known here", name.0, part.schema, part.version);
            report.add(Area::Structure, Severity::Error, message);
        }
    }
}

async fn surroundings(whole: &Whole, environment: &dyn Environment, report: &mut ValidationReport) {
    let Some(recovery) = whole.record.as_ref().map(|record| &record.recovery) else { return };
    let folder = recovery.working_directory.as_deref().map(Path::new);
    if let Some(folder) = folder {
        report.checks += 1;
        if !environment.is_folder(folder).await {
            let message = format!("the working directory {} doesn't exist", folder.display());
            report.add(Area::Environment, Severity::Error, message);
        }
    }
    let requirements = &recovery.requirements;
    for file in &requirements.files {
        check_file(&place(folder, &file.path), file, environment, report).await;
    }
    for program in &requirements.programs {
        check_program(program, environment, report).await;
    }
    for variable in &requirements.variables {
        report.checks += 1;
        if !environment.has_variable(variable) {
            report.add(Area::Environment, Severity::Error, format!("the environment variable {variable} isn't set"));
        }
    }
    if let Some(wanted) = requirements.disk_bytes {
        report.checks += 1;
        match environment.free_bytes(folder.unwrap_or(Path::new("."))).await {
            Some(free) if free < wanted => {
                let message = format!("{free} bytes are free on the disk, and {wanted} are needed");
                report.add(Area::Environment, Severity::Error, message);
            }
            Some(_) => {}
            None => report.add(Area::Environment, Severity::Info, "how much space is free on the disk can't be told"),
        }
    }
    for host in &requirements.hosts {
        report.checks += 1;
        match environment.reaches(host).await {
            Some(true) => {}
            Some(false) => report.add(Area::Environment, Severity::Error, format!("{host} doesn't answer")),
            None => report.add(Area::Environment, Severity::Info, format!("whether {host} answers wasn't tried")),
        }
    }
}

/// Where a file is that a checkpoint names.
pub(super) fn place(folder: Option<&Path>, path: &str) -> PathBuf {
    folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

async fn check_file(path: &Path, file: &RequiredFile, environment: &dyn Environment, report: &mut ValidationReport) {
    report.checks += 1;
    let shown = &file.path;
    match (environment.file_hash(path).await, file.hash) {
        (Err(error), _) => {
            report.add(Area::Environment, Severity::Error, format!("the file {shown:?} can't be read: {error}"));
        }
        (Ok(None), _) => report.add(Area::Environment, Severity::Warning, format!("the file {shown:?} is missing")),
        (Ok(Some(now)), Some(then)) if now != then => {
            report.add(Area::Environment, Severity::Warning, format!("the file {shown:?} has changed"));
        }
        (Ok(Some(_)), _) => {}
    }
}

async fn check_program(program: &RequiredProgram, environment: &dyn Environment, report: &mut ValidationReport) {
    report.checks += 1;
    let name = &program.name;
    if !environment.has_program(name).await {
        return report.add(Area::Environment, Severity::Error, format!("the program {name:?} isn't installed"));
    }
    let Some(wanted) = &program.version else { return };
    report.checks += 1;
    match environment.program_version(name).await {
        Some(said) => match version_in(&said) {
            Some(found) if numbers(found) < numbers(wanted) => {
                let message = format!("{name:?} has version {found}, and {wanted} is needed");
                report.add(Area::Environment, Severity::Error, message);
            }
            Some(_) => {}
            None => report.add(Area::Environment, Severity::Warning, format!("{name:?} doesn't say its version")),
        },
        None => report.add(Area::Environment, Severity::Info, format!("the version of {name:?} wasn't asked")),
    }
}

/// The first thing in a text that looks like a version.
fn version_in(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.map(|word| word.trim_matches('.')).find(|word| word.contains('.') || !word.is_empty())
}

/// The numbers of a version, without zeros at its end: 2.40 is 2.40.0.
fn numbers(version: &str) -> Vec<u64> {
    let mut numbers: Vec<u64> = version.split('.').map_while(|number| number.parse().ok()).collect();
    while numbers.last() == Some(&0) {
        numbers.pop();
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let version = |text| version_in(text).map(numbers);
        assert_eq!(version("git version 2.43.0 (x)"), Some(vec![2, 43]));
        assert_eq!(version("Python 3.11.2\n"), Some(vec![3, 11, 2]));
        assert_eq!(version("node v22."), Some(vec![22]));
        assert_eq!(version("none"), None);
        assert!(numbers("2.9") < numbers("2.10"));
        assert!(numbers("2.40") == numbers("2.40.0") && numbers("2.40.1") > numbers("2.40"));
    }
}
