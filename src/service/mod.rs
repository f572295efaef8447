//! The host-facing library calls: run_agent, bind_mcp_tools, execute_tool_call.
