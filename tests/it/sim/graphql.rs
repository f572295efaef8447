//! The simulated GraphQL API.

use agentd::sim::Simulator;
use agentd::sim::world::FieldContent;
use serde_json::{Value, json};

use super::{Caller, REPO, answer, example};

async fn ask(sim: &Simulator, query: &str, variables: Value) -> Value {
    Caller::new(sim).send("POST", "/graphql", json!({"query": query, "variables": variables})).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn graphql_answers_project_fields_of_many_issues_at_once() {
    let sim = example().await;
    sim.set_project_field(REPO, 2, "Roadmap", "Target Branch", Some(FieldContent::Text("main".to_owned())));
    let query = r#"
        query($owner: String!, $name: String!, $field: String!) {
          repository(owner: $owner, name: $name) {
            one: issue(number: 1) { ...cards }
            two: issue(number: 2) { ...cards }
            gone: issue(number: 9) { number }
          }
        }
        fragment cards on Issue {
          number
          projectItems(first: 20, includeArchived: false) {
            pageInfo { hasNextPage endCursor }
            nodes {
              project { title number }
              fieldValueByName(name: $field) {
                __typename
                ... on ProjectV2ItemFieldTextValue { text }
                ... on ProjectV2ItemFieldSingleSelectValue { name }
              }
              fieldValues(first: 10) {
                nodes {
                  ... on ProjectV2ItemFieldSingleSelectValue { name field { ... on ProjectV2FieldCommon { name } } }
                }
              }
            }
          }
        }"#;
    let answer =
        ask(&sim, query, json!({"owner": "octo", "name": "greeter", "field": "Target Branch"})).await;
    let repository = &answer["data"]["repository"];
    let card = &repository["one"]["projectItems"]["nodes"][0];
    assert_eq!(card["project"], json!({"title": "Roadmap", "number": 1}));
    let single = json!({"__typename": "ProjectV2ItemFieldSingleSelectValue", "name": "develop"});
    assert_eq!(card["fieldValueByName"], single);
    assert_eq!(
        card["fieldValues"]["nodes"],
        json!([
            {"name": "Todo", "field": {"name": "Status"}},
            {"name": "develop", "field": {"name": "Target Branch"}}
        ])
    );
    let text = json!({"__typename": "ProjectV2ItemFieldTextValue", "text": "main"});
    assert_eq!(repository["two"]["projectItems"]["nodes"][0]["fieldValueByName"], text);
    assert_eq!(repository["gone"], Value::Null);
    assert_eq!(answer["errors"][0]["type"], "NOT_FOUND");
    assert_eq!(answer["errors"][0]["path"], json!(["repository", "gone"]));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn graphql_refuses_what_the_schema_does_not_have() {
    let sim = example().await;
    let refused = async |query: &str, variables: Value| {
        let answer = ask(&sim, query, variables).await;
        assert!(answer.get("data").is_none(), "{answer}");
        (answer["errors"][0]["extensions"]["code"].clone(), answer["errors"][0]["message"].clone())
    };
    let (code, message) =
        refused("{ repository(owner: \"octo\", name: \"greeter\") { colour } }", json!({})).await;
    assert_eq!(code, "undefinedField");
    assert_eq!(message, "Field 'colour' doesn't exist on type 'Repository'");
    let (code, _) = refused("{ repository(owner: \"octo\") { id } }", json!({})).await;
    assert_eq!(code, "missingRequiredArguments");
    let (code, _) = refused("{ viewer { login { x } } }", json!({})).await;
    assert_eq!(code, "selectionMismatch");
    let (code, _) = refused(
        "query($n: String!) { repository(owner: \"a\", name: \"b\") { issue(number: $n) { id } } }",
        json!({"n": "1"}),
    )
    .await;
    assert_eq!(code, "variableMismatch");
    let (code, _) = refused("query($n: Int) { viewer { login } }", json!({})).await;
    assert_eq!(code, "variableNotUsed");
    let (_, message) = refused("query { viewer { login }", json!({})).await;
    assert!(message.as_str().unwrap().starts_with("Expected"), "{message}");
    let (_, message) =
        refused("query($o: String!) { repository(owner: $o, name: \"b\") { id } }", json!({})).await;
    assert_eq!(message, "Variable $o of type String! was provided invalid value");
    assert_eq!(sim.violations().len(), 7, "{:?}", sim.violations());
    // Not a mistake in the query: GitHub says these while it runs.
    let unbounded = "{ repository(owner: \"octo\", name: \"greeter\") { issue(number: 1) { projectItems { totalCount } } } }";
    assert_eq!(ask(&sim, unbounded, json!({})).await["errors"][0]["type"], "MISSING_PAGINATION_BOUNDARIES");
    let anonymous = reqwest::Client::builder().user_agent("t").build().unwrap();
    let body = json!({"query": "{ viewer { login } }"});
    assert_eq!(answer(anonymous.post(sim.graphql_url()).json(&body)).await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn graphql_turns_drafts_into_pull_requests_and_back() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let draft = json!({"title": "t", "head": "develop", "base": "main", "draft": true});
    let (_, pull) = api.send("POST", "/repos/octo/greeter/pulls", draft).await;
    assert_eq!(pull["draft"], true);
    for (mutation, draft) in [("markPullRequestReadyForReview", false), ("convertPullRequestToDraft", true)] {
        let query = format!(
            "mutation($id: ID!) {{ {mutation}(input: {{pullRequestId: $id}}) {{ pullRequest {{ isDraft }} }} }}"
        );
        let answer = ask(&sim, &query, json!({"id": pull["node_id"]})).await;
        assert_eq!(answer["data"][mutation]["pullRequest"]["isDraft"], draft);
        assert_eq!(sim.pulls(REPO)[0].pull.as_ref().unwrap().draft, draft);
    }
}
