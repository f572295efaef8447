//! What a person tells agentd to do in a comment: `/agentd WORD`, on the comment's first line.

use super::money::Money;

/// A command. The text of a command is the rest of its first line and all lines after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `run`, `retry`: a run, the first or another one on the same branch.
    Run,
    /// `stop`: the end of the run, with one last report; of a queued issue its label off.
    Stop,
    /// `extend [USD]`: more budget, for the run that works, else for one more on the same branch.
    Extend(Extension),
    /// `approve [HASH]`: what waits for an approval, or the one of several whose hash begins so. It executes nothing.
    Approve(String),
    /// `reject TEXT`: what waits for an approval is to be made anew, for this reason.
    Reject(String),
    /// `answer TEXT`: the answer to the question that the agent asked.
    Answer(String),
    /// `say TEXT`: a remark for the run that works, else for the next one.
    Say(String),
    /// `take`: a person works on the branch from here on.
    Take,
    /// `give-back TEXT`: the agent goes on, and is told this.
    GiveBack(String),
    /// A word that is none; empty = there is no word at all.
    Unknown(String),
}

/// How much more budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extension {
    /// As much again of each budget.
    Again,
    /// This much money.
    By(Money),
    /// What stands there is no amount of money.
    Unreadable(String),
}

/// The commands, for people who wrote another one: a Markdown list.
pub const KNOWN: &str = "- `/agentd run` or `/agentd retry`: a run on the issue's branch\n\
                         - `/agentd stop`: the run that works gives one last report (an agent program has ten seconds) and ends; an issue that waits is not begun\n\
                         - `/agentd extend`: as much again of each budget for the run that works, else another run\n\
                         - `/agentd extend 5`: 5 USD more for the issue\n\
                         - `/agentd answer TEXT`: the answer to the agent's question\n\
                         - `/agentd approve HASH`: what waits for approval goes on (a plan also without its hash)\n\
                         - `/agentd reject TEXT`: the plan is made again, for this reason\n\
                         - `/agentd say TEXT`: tells the run that works, or the next one\n\
                         - `/agentd take`: you work on the branch from here on\n\
                         - `/agentd give-back TEXT`: the agent goes on with what you made of it";

impl Command {
    /// The command of a comment; `None` = it is conversation. Only the first line says so: not a quote, not a code block.
    pub fn of(body: &str) -> Option<Self> {
        let body = body.trim_start_matches(['\r', '\n']);
        let (first, more) = body.split_once('\n').unwrap_or((body, ""));
        // Four columns in are a code block.
        let indent = first.len() - first.trim_start().len();
        if indent > 3 || first.starts_with('\t') {
            return None;
        }
        let rest = first.trim();
        let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if !name.trim_end_matches([':', ',']).eq_ignore_ascii_case("/agentd") {
            return None;
        }
        let rest = rest.trim_start();
        let (word, line) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let word = word.trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let text = || format!("{}\n{more}", line.trim()).trim().to_owned();
        Some(match word.as_str() {
            "run" | "retry" => Self::Run,
            "stop" => Self::Stop,
            "extend" => Self::Extend(Extension::of(line)),
            "approve" => Self::Approve(hash(line.split_whitespace().next().unwrap_or_default())),
            "reject" => Self::Reject(text()),
            "answer" => Self::Answer(text()),
            "say" => Self::Say(text()),
            "take" => Self::Take,
            "give-back" => Self::GiveBack(text()),
            _ => Self::Unknown(word),
        })
    }
}

impl Command {
    /// Its name, without the words that stand behind it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Extend(_) => "extend",
            Self::Approve(_) => "approve",
            Self::Reject(_) => "reject",
            Self::Answer(_) => "answer",
            Self::Say(_) => "say",
            Self::Take => "take",
            Self::GiveBack(_) => "give-back",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl Extension {
    /// What stands behind `extend`.
    fn of(line: &str) -> Self {
        let said = line.trim();
        match amount(said) {
            Some(money) => Self::By(money),
            // Whoever wrote something there wanted something else than all budgets once more.
            None if said.contains(char::is_alphanumeric) => Self::Unreadable(said.to_owned()),
            None => Self::Again,
        }
    }
}

/// An amount of US dollars above zero as people write it: `5`, `2.50`, with `$` or `USD` beside it. No sign, no exponent, no
/// comma, at most two digits behind the point.
pub fn amount(said: &str) -> Option<Money> {
    let said = said.trim();
    let said = said.strip_prefix('$').unwrap_or(said);
    let said = said.strip_suffix('$').unwrap_or(said);
    let currency = |at: Option<&str>| at.is_some_and(|word| word.eq_ignore_ascii_case("usd"));
    let said = if currency(said.get(..3)) { &said[3..] } else { said };
    let end = said.len().saturating_sub(3);
    let said = if currency(said.get(end..)) { &said[..end] } else { said };
    let number = said.trim();
    let (whole, cents) = number.split_once('.').map_or((number, None), |(whole, cents)| (whole, Some(cents)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || cents.is_some_and(|cents| !digits(cents) || cents.len() > 2) {
        return None;
    }
    let money = Money::from_dollars(number.parse().ok()?)?;
    (money > Money::ZERO).then_some(money)
}

/// The hash in a word, as people copy it: in code quotes, with a full stop.
fn hash(word: &str) -> String {
    word.chars().filter(char::is_ascii_hexdigit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_line_that_says_so_is_a_command() {
        for (body, command) in [
            ("/agentd run", Command::Run),
            ("  /AgentD Retry please\nthank you", Command::Run),
            ("/agentd retry, please", Command::Run),
            ("\r\n/agentd stop\r\n", Command::Stop),
            ("/agentd extend!", Command::Extend(Extension::Again)),
            ("/agentd extend\n\nplease", Command::Extend(Extension::Again)),
            ("/agentd extend five", Command::Extend(Extension::Unreadable("five".into()))),
            ("/agentd extend \u{ff15}", Command::Extend(Extension::Unreadable("\u{ff15}".into()))),
            ("/agentd approve abc", Command::Approve("abc".into())),
            ("/agentd approve `0a1b2c3d`.", Command::Approve("0a1b2c3d".into())),
            ("/agentd approve", Command::Approve(String::new())),
            ("/agentd say look at\nlib/a.sh", Command::Say("look at\nlib/a.sh".into())),
            ("/agentd answer\n\ntwo", Command::Answer("two".into())),
            ("/agentd reject too much", Command::Reject("too much".into())),
            ("/agentd give-back", Command::GiveBack(String::new())),
            ("/agentd take", Command::Take),
            ("/agentd dance", Command::Unknown("dance".into())),
            ("/agentd attach", Command::Unknown("attach".into())),
            ("/agentd", Command::Unknown(String::new())),
            ("/agentd \n", Command::Unknown(String::new())),
            ("/agentd ???", Command::Unknown(String::new())),
            ("/agentd \u{4e2d}\u{6587}!", Command::Unknown("\u{4e2d}\u{6587}".into())),
            ("/agentd: stop", Command::Stop),
            ("/agentd, stop", Command::Stop),
        ] {
            assert_eq!(Command::of(body), Some(command), "{body}");
        }
        for talk in [
            "",
            "run",
            "> /agentd run",
            "say /agentd run",
            "text\n/agentd run",
            "/agentdrun",
            "    /agentd run",
            "\t/agentd run",
            "```\n/agentd run\n```",
            "`/agentd run`",
        ] {
            assert_eq!(Command::of(talk), None, "{talk}");
        }
    }

    #[test]
    fn an_amount_has_digits_and_cents_and_nothing_else() {
        let dollars = |said: &str| amount(said).map(|money| money.dollars());
        for (said, worth) in [
            ("5", 5.0),
            ("2.5", 2.5),
            ("0.25", 0.25),
            ("$5", 5.0),
            ("5$", 5.0),
            ("5 USD", 5.0),
            ("usd 5", 5.0),
            ("5usd", 5.0),
        ] {
            assert_eq!(dollars(said), Some(worth), "{said}");
        }
        for no in
            ["", "0", "0.00", "-5", "+5", "1e9", "5,00", "5.123", ".5", "5.", "five", "5 6", "$", "USD", "٣"]
        {
            assert_eq!(dollars(no), None, "{no}");
        }
        let extension = |said: &str| Command::of(&format!("/agentd extend {said}"));
        assert_eq!(extension("-5"), Some(Command::Extend(Extension::Unreadable("-5".into()))));
        assert_eq!(extension("1e9"), Some(Command::Extend(Extension::Unreadable("1e9".into()))));
        assert_eq!(extension("$5"), Some(Command::Extend(Extension::By(Money::from_micros(5_000_000)))));
    }
}
