//! What an MCP server may not do to agentd.
