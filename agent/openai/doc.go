// Package openai is the model adapter for OpenAI and for servers that speak one
// of its two APIs, on github.com/openai/openai-go/v3.
//
//	          Responses                       Chat Completions
//	path      <BaseURL>/responses             <BaseURL>/chat/completions
//	for       api.openai.com (the default)    everything compatible (the default with a BaseURL)
//	system    instructions                    a system message
//	thought   reasoning item                  the message's reasoning_content or reasoning
//	text      message item                    the message's content
//	call      function_call item              an entry of the message's tool_calls
//	result    function_call_output item       a tool message
//	image     url, data                       url, data
//	document  url, data                       data
//	audio     no                              data: wav or mp3
//
// Every call streams, and nothing is stored at the provider: the whole
// conversation is sent each time. What the provider wants back with it travels in
// the events' provider context, so a conversation goes on in any process. With
// Responses these are the reasoning items as they came, encrypted and often
// without a text, and what messages and calls had beside their content (id,
// status, phase). With Chat it is the name of the field that a thought came in,
// for servers that refuse a conversation without it, and a call's extra_content.
// Thoughts of other providers are left out, and so are reasoning items that the
// API would refuse: those that came without their encrypted content, and those
// that nothing follows because the answer was cut there.
//
// A tool's result is sent as its JSON, a string as its plain text, and an error
// as {"error": "…"}. Arguments that were no JSON go back as the model wrote them.
//
// Finish reasons are stop, length, tool_calls and content_filter. A refusal is
// part of the answer's text, and its finish reason is content_filter.
//
// Failures are [agent.ModelError] values with the provider's own message, status
// and Retry-After. There are no retries here, that is the caller's part. A
// connection that fails or is cut, a stream that ends before the answer does and
// an event that cannot be read have status 0. An error inside of a stream has the
// status that its code stands for: 429 for limits, 401 and 403 for keys, 5xx for
// the server's own, 400 for what is left. An answer of more than 16 MiB is a 502.
package openai
