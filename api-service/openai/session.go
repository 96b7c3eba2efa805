package openai

import "encoding/json"

// setSession reads whose conversation it is, which decides about nothing but its worker. What is there for that, prompt_cache_key,
// counts before user, in whatever order they come.
func setSession(c *Chat, param string, raw json.RawMessage) error {
	v, err := text(param, raw)
	if err == nil && v != "" && (c.session == "" || param != "user") {
		c.session, c.Request.Session = param, v
	}
	return err
}
