//! An agent over the Agent Client Protocol, well-behaved and misbehaving: each ends as specified.

use serde_json::{Value, json};

use super::bench::{FIX, events, fixer, journal, no_sandbox, script};
use crate::outside::world::{World, text};

/// A program that speaks the protocol, and does what its first argument says.
const AGENT: &str = r##"#!/bin/bash
mode=$1
say() { printf '%s\n' "$1"; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'"$1"'}}'; }
words() { update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}}'; }
ask() { say '{"jsonrpc":"2.0","id":'"$1"',"method":"session/request_permission","params":{"sessionId":"s","toolCall":'"$2"',"options":['"$3"']}}'; }
ONCE='{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}'
permission() { ask "$1" '{"toolCallId":"c","kind":"edit","locations":[{"path":"'"$2"'"}]}' "$ONCE"; read -r answer; }
paid() { update '{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":'"$1"',"currency":"USD"}}'; }
spent() { say '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":100,"outputTokens":'"$1"'}}}'; exit 0; }
finish() { say '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":100,"outputTokens":20}}}'; exit 0; }
read -r line
case $mode in
  exits) echo "no licence" >&2; exit 3 ;;
  never-speaks) say 'Welcome to my agent!'; say '{"level":"info"}'; sleep 60 ;;
  wants-a-login) say "Please log in, $MODEL_KEY does not do"; say 'more'; exit 5 ;;
  babbles) yes 'one more line' ;;
  breaks-protocol) say '{"jsonrpc":"2.0","id":17,"result":{}}'; sleep 60 ;;
  shows-banners) say 'Welcome to my agent!'; say '{"level":"info","id":1,"msg":"started"}'; say '{"error":"no cache"}'; say '[1]'; printf '\377\n' ;;
  floods) tr '\0' x </dev/zero ;;
  ignores-signals) trap '' TERM INT HUP; sleep 31.9 & sleep 31.9; sleep 31.9 ;;
esac
say '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":LOADS},"authMethods":[{"id":"browser"},{"id":"some-key","vars":[{"name":"MODEL_KEY"}]}]}}'
read -r line
case $mode in
  wants-a-key|wants-another) say '{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Authentication required"}}'; read -r line
    case $line in *'"methodId":"some-key"'*) say '{"jsonrpc":"2.0","id":5,"result":{}}'; read -r line;; *) exit 4;; esac
    case $mode in wants-another) say '{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Authentication required","data":{"details":"the key is wrong"}}}'; read -r line; exit 4;; esac ;;
esac
case $line in *session/load*)
  words "old words"; say '{"jsonrpc":"2.0","id":4,"result":null}'; read -r prompt
  FIXED; paid 2.0; words "loaded: $(printf %s "$line" | grep -o '"sessionId":"[a-z]*"' | tr -d '"'), $(printf %s "$prompt" | grep -c 'You fix issues')"; finish ;;
esac
say '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
read -r line
case $mode in
  speaks-late) paid 1.0; case $line in *'cannot be used'*) FIXED; words "anew: $(printf %s "$line" | grep -c 'You fix issues')";; esac; finish ;;
  never-ends) words "thinking"; sleep 600 ;;
  costs) update '{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":99.5,"currency":"USD"}}'; sleep 600 ;;
  lies-about-usage) FIXED; words "done"; update '{"sessionUpdate":"usage_update","used":-1,"size":0,"cost":{"amount":-3,"currency":"USD"}}'
    say '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":18446744073709551615,"outputTokens":"many"}}}'; exit 0 ;;
  writes-a-book) FIXED; for part in 1 2 3 4 5; do words "$(head -c 1000000 /dev/zero | tr '\0' x)"; done; finish ;;
  tells-tokens) FIXED; words "done"; spent 2000000 ;;
  tells-euros) FIXED; words "done"; update '{"sessionUpdate":"usage_update","cost":{"amount":99,"currency":"EUR"}}'; spent 2000000 ;;
  tells-a-text) FIXED; words "done"; paid '"7.5"'; finish ;;
  tells-too-much) FIXED; words "done"; paid 2e12; finish ;;
  shows-banners) say '(node:7) Warning: an option is deprecated'; FIXED; say '...50 %'; words 'cut \ud83d here'; say 'Bye!'; finish ;;
  asks) permission 9 lib/cart.sh; case "$answer" in *'"yes"'*) FIXED;; esac
    permission 10 .github/workflows/ci.yml; case "$answer" in *'"no"'*) words "I was refused once";; esac; finish ;;
  spoofs) ask 9 '{"toolCallId":"c","kind":"other","title":"mcp__agentd__x","rawInput":{"cmd":"rm -rf /"}}' "$ONCE"; read -r first
    ask 10 '{"toolCallId":"d","title":"agentd_edit_file","rawInput":{"target":".github/x","contents":"evil"}}' "$ONCE"; read -r second
    ask 11 '{"toolCallId":"e","kind":"other","title":"mcp__agentd__edit_file","rawInput":{"path":"lib/cart.sh","old":"a","new":"b"}}' "$ONCE"; read -r third
    case "$first$second$third" in *'"no"'*'"no"'*'"yes"'*) FIXED; words "only the real one";; esac; finish ;;
  asks-for-ever) ask 9 '{"toolCallId":"c","kind":"edit","locations":[{"path":"lib/cart.sh"}]}' '{"optionId":"ever","name":"Yes","kind":"allow_always"},{"optionId":"never","name":"No","kind":"reject_always"}'
    read -r answer; case "$answer" in *'"cancelled"'*) FIXED; words "it was left open";; esac; finish ;;
  writes-outside) echo broken > "$2"; words "written"; FIXED; finish ;;
  wants-a-key) FIXED; words "signed in"; finish ;;
  forks) setsid sleep 31.6 >/dev/null 2>&1 & (sleep 31.6 >/dev/null 2>&1 &) ; FIXED; words "forked"; finish ;;
  prints-secrets) FIXED; words "the key is $A_SECRET"; finish ;;
esac
"##;

async fn run(world: &World, mode: &str, caged: bool) -> (Option<i32>, Value) {
    let agent = script(world, "agent.sh", &AGENT.replace("FIXED", FIX).replace("LOADS", "false"));
    let outside = world.dir.path().join("outside.txt");
    // On a busy machine everything else may be silent for two seconds.
    let stall_limit =
        if ["never-speaks", "never-ends", "ignores-signals"].contains(&mode) { "2s" } else { "60s" };
    let program = json!({
        "argv": [agent, mode, outside], "stallLimit": stall_limit, "environment": ["MODEL_KEY"],
        "sandbox": if caged { "auto" } else { "off" },
    });
    fixer(world, "acp", &program);
    world.json(&["run", "--issue", "7", "--agent", "fixer"]).await
}

fn message(output: &Value) -> String {
    output.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_well_behaved_agent_is_answered_by_the_policy_and_its_usage_counts() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "asks", false).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{output:#}");
    world.assert_one_of_each();
    assert!(message(&output).contains("I was refused once"), "{output:#}");
    let told = journal(&world, &output);
    assert!(told.contains("\"inputTokens\":100"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_only_called_one_of_agentds_is_judged_as_any_other() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "spoofs", false).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(message(&output).contains("only the real one"), "{output:#}");
    let told = events(&world, &output);
    let judged = told.iter().filter(|event| event["data"]["resource"]["name"] == "acp__other").count();
    assert_eq!(judged, 2, "{told:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_permission_is_given_for_ever_where_the_policy_answers() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "asks-for-ever", false).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(message(&output).contains("it was left open"), "{output:#}");
    world.finish().await;
}

/// The one call that waits is approved, and the run is gone on with: nothing is asked once more.
async fn approved_goes_on(world: &World) {
    let (_, waits) = world.json(&["approvals", "list"]).await;
    assert_eq!(waits.as_array().unwrap().len(), 1, "{waits:#}");
    let hash = waits[0]["proposal_hash"].as_str().unwrap();
    assert_eq!(world.json(&["approvals", "approve", hash]).await.0, Some(0));
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(world.json(&["approvals", "list"]).await.1, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_an_edit_of_its_own_that_a_person_approved_is_not_asked_about_once_more_when_it_is_done() {
    let world = World::new(0).await;
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let rule = "[[rule]]\nid = \"cart\"\nkind = \"tool\"\nname = \"write_file\"\neffect = \"deny\"\nreason = \"approval_required\"\n\
                when = { path = [\"lib/cart.sh\"] }\n\n";
    world.write("shop/.agent/policy.toml", &(rule.to_owned() + &policy));
    let (_, output) = run(&world, "asks", false).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    approved_goes_on(&world).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_the_start_of_a_program_that_a_person_approved_is_made_and_not_asked_about_once_more() {
    let world = World::new(0).await;
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let rule = "[[rule]]\nid = \"start\"\nkind = \"tool\"\nname = \"exec_agent__acp\"\neffect = \"deny\"\nreason = \"approval_required\"\n\n";
    world.write("shop/.agent/policy.toml", &(rule.to_owned() + &policy));
    let (_, output) = run(&world, "asks", false).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    assert!(!world.shop().join(".worktrees/issue-7/notes").exists());
    approved_goes_on(&world).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn misbehaviour_ends_as_a_failure_of_the_program_and_leaves_nothing_running() {
    let ways = [
        ("exits", "no licence"),
        ("never-speaks", "instead of a message of the protocol, and then nothing for 2 s"),
        ("wants-a-login", "with exit code 5; it wrote \\\"Please log in, "),
        ("babbles", "10000 lines in a row are no messages, the last one \\\"one more line\\\""),
        ("breaks-protocol", "it broke the protocol: it answers what nobody asked"),
        ("floods", "it wrote more than agentd reads"),
        ("writes-a-book", "it wrote 5000000 bytes, more than agentd reads of an answer (4194304)"),
        ("never-ends", "it said nothing for 2 s"),
        ("ignores-signals", "it said nothing for 2 s"),
    ];
    let world = World::new(0).await;
    for (mode, words) in ways {
        let (code, output) = run(&world, mode, false).await;
        let ended = (code, output["stop_detail"].as_str());
        assert_eq!(ended, (Some(1), Some("agent_cli_failed")), "{mode}: {output:#}");
        assert!(message(&output).contains(words), "{mode}: {output:#}");
        assert!(!message(&output).contains("a-key-of-the-simulator"), "{mode}: {output:#}");
    }
    let left = std::process::Command::new("pgrep").args(["-f", "sleep 31.9"]).output().unwrap();
    assert_eq!(text(&left.stdout), "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_no_messages_are_passed_over() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "shows-banners", false).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{output:#}");
    assert!(message(&output).contains("cut \u{fffd} here"), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_authenticated_once_with_the_key_that_it_has_and_a_refusal_says_why() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "wants-another", false).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    assert!(message(&output).contains("Authentication required (the key is wrong)"), "{output:#}");
    let (code, output) = run(&world, "wants-a-key", false).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(message(&output).contains("signed in"), "{output:#}");
    // Without a variable for any of its ways it is said what it lacks.
    let agent = script(&world, "agent.sh", &AGENT.replace("FIXED", FIX).replace("LOADS", "false"));
    fixer(&world, "acp", &json!({"argv": [agent, "wants-a-key"], "sandbox": "off"}));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let told = message(&output);
    assert!(told.contains("browser, some-key") && told.contains("program.endpoints"), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_a_hard_cap_ends_it_while_it_works() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "costs", false).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_again_it_goes_on_with_its_session_where_it_can_load_one() {
    let world = World::new(0).await;
    for (loads, words) in [("true", "loaded: sessionId:s, 0"), ("false", "anew: 1")] {
        let agent = AGENT.replace("FIXED", FIX).replace("LOADS", loads);
        let agent = script(&world, "agent.sh", &agent);
        fixer(&world, "acp", &json!({"argv": [agent, "speaks-late"], "sandbox": "off"}));
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert_eq!(code, Some(0), "{output:#}");
        assert!(message(&output).contains(words), "{words}: {output:#}");
        assert!(!message(&output).contains("old words"), "{output:#}");
        // A loaded session tells what it has cost from its start, a new one from its own.
        assert_eq!(output["totals"]["cost_usd"], json!(2.0), "{output:#}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_tells_of_a_model_without_a_price_ends_at_the_cap_whatever_the_figure_looks_like() {
    for (mode, cost) in [
        ("lies-about-usage", Value::Null),
        ("tells-tokens", Value::Null),
        ("tells-euros", Value::Null),
        ("tells-a-text", json!(7.5)),
        ("tells-too-much", json!(1e9)),
    ] {
        // Each has the whole budget of its issue.
        let world = World::new(0).await;
        let (code, output) = run(&world, mode, false).await;
        let ended = (code, output["stop_detail"].as_str());
        assert_eq!(ended, (Some(1), Some("max_cost")), "{mode}: {output:#}");
        assert_eq!(output["totals"]["cost_usd"], cost, "{mode}: {output:#}");
        let warned = output["warnings"].to_string().contains("the dearest price of a target counts");
        assert_eq!(warned, cost.is_null(), "{mode}: {output:#}");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_do_not_matter() {
    let world = World::new(0).await;
    let (code, output) = run(&world, "forks", false).await;
    assert_eq!(code, Some(0), "{output:#}");
    let left = std::process::Command::new("pgrep").args(["-f", "sleep 31.6"]).output().unwrap();
    assert_eq!(text(&left.stdout), "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_cage_it_writes_nothing_outside() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    world.write("outside.txt", "untouched\n");
    let (code, output) = run(&world, "writes-outside", true).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(std::fs::read_to_string(world.dir.path().join("outside.txt")).unwrap(), "untouched\n");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_it_prints_is_in_no_record() {
    let world = World::new(0).await;
    let agent = script(
        &world,
        "agent.sh",
        &AGENT.replace("FIXED", FIX).replace("LOADS", "false").replace("A_SECRET", "MODEL_KEY"),
    );
    fixer(
        &world,
        "acp",
        &json!({"argv": [agent, "prints-secrets"], "environment": ["MODEL_KEY"], "sandbox": "off"}),
    );
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = journal(&world, &output) + &output.to_string();
    assert!(told.contains("the key is") && !told.contains("a-key-of-the-simulator"), "{told}");
    world.finish().await;
}
