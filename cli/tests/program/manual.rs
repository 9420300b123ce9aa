//! What the program says of itself: help, manual pages, completion.

use super::commands::{Place, text};

/// The names of the commands in the help of a command, without `help` itself.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command below this one, and itself, as words of a command line.
fn all(place: &Place, above: &str) -> Vec<String> {
    let mut found = vec![above.to_owned()];
    for name in commands(&place.quiet(&format!("{above} --help"))) {
        found.extend(all(place, format!("{above} {name}").trim()));
    }
    found
}

#[test]
fn every_command_has_a_manual_page_and_a_help_that_is_wrapped() {
    let place = Place::new();
    place.quiet("man-pages pages/man1");
    let found = all(&place, "");
    assert!(found.iter().any(|command| command == "trace convert"), "{found:?}");
    for command in &found {
        let name = format!("undercroft {command}").trim().replace(' ', "-");
        let page = place.read(&format!("pages/man1/{name}.1"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
        let help = place.quiet(&format!("{command} --help"));
        let long = help.lines().find(|line| line.chars().count() > 100 && line.contains("  --"));
        assert_eq!(long, None, "{command}");
    }
    let pages = std::fs::read_dir(place.path("pages/man1")).unwrap().count();
    assert!(pages >= found.len(), "{pages}");
    assert!(!place.quiet("--help").contains("man-pages"));
    let said = place.fails(1, "man-pages a.spc");
    assert!(said.contains("a.spc"), "{said}");
}

#[test]
fn the_options_of_long_commands_are_grouped() {
    let place = Place::new();
    let heading = |help: &str| {
        help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).count()
    };
    for (command, group) in [("simulate", "With a clock:"), ("serve", "Cache:"), ("replay", "TLS:")]
    {
        let help = place.quiet(&format!("{command} --help"));
        assert!(help.lines().any(|line| line == group) && heading(&help) >= 4, "{help}");
    }
}

#[test]
fn shells_can_complete() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.quiet(&format!("completions {shell}"));
        assert!(script.contains("simulate"), "{shell}");
    }
    place.write("complete.bash", place.quiet("completions bash"));
    let script = place.path("complete.bash");
    let output = std::process::Command::new("bash").arg("-n").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    place.fails(2, "completions csh");
}

/// As `undercroft completions bash | head -1`, whose reader leaves before everything is written.
#[test]
fn a_reader_may_leave_before_the_end() {
    let place = Place::new();
    for command in ["completions bash", "policies", "policies --json", "simulate --help"] {
        let mut child = place.command(command).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stderr).as_str()),
            (Some(0), ""),
            "{command}"
        );
    }
}
