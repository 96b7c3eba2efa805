package openai

import "encoding/json"

// setSession parses the fields that identify the conversation; a session affects only the choice of
// the worker. prompt_cache_key overrides user, in whatever order they appear.
func setSession(c *Chat, param string, raw json.RawMessage) error {
	v, err := text(param, raw)
	if err == nil && v != "" && (c.session == "" || param != "user") {
		c.session, c.Request.Session = param, v
	}
	return err
}
