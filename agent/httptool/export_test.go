package httptool

import (
	"net/http"
	"net/netip"

	"github.com/turnpool/turnpool/agent"
)

// Public is what decides on addresses.
var Public = public

// NewUnchecked makes a tool whose addresses allowed decides on, so that a test can
// tell one loopback address from another, and whose URL is not judged before.
func NewUnchecked(cfg Config, allowed func(netip.AddrPort) bool) (*agent.Tool, *http.Transport) {
	c := newCaller(cfg)
	own := newTransport(allowed)
	c.client.Transport = own
	return &agent.Tool{Name: cfg.Name, Execute: c.execute}, own
}

// PublicAt is the rule of tools that may not use private addresses.
func PublicAt(at netip.AddrPort) bool { return public(at.Addr()) }
