package httptool_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/httptool"
)

func TestPublic(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "172.15.255.255": true, "172.32.0.1": true, "100.63.255.255": true, "100.128.0.1": true,
		"192.0.1.1": true, "223.255.255.255": true, "169.253.0.1": true,
		"2606:4700:4700::1111": true, "2a00:1450:4001:80b::200e": true, "2001:4860:4860::8888": true,
		"::ffff:8.8.8.8": true, "64:ff9b::808:808": true,

		"127.0.0.1": false, "127.255.255.254": false, "10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"169.254.169.254": false, "169.254.0.1": false, "100.64.0.1": false, "100.127.255.255": false,
		"0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false,
		"192.0.0.1": false, "192.0.2.1": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false, "203.0.113.1": false,
		"192.88.99.1": false,
		"::":          false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false,
		"fec0::1": false, "100::1": false, "2001:db8::1": false, "2001::1": false, "3fff::1": false, "5f00::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.0.0.1": false, "::7f00:1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b::a00:1": false, "64:ff9b:1::808:808": false,
		"2002:7f00:1::": false, "2002:808:808::": false,
	} {
		if got := httptool.Public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is public: %t", addr, got)
		}
	}
}

// Nothing is sent to a private address: what counts is the address that is
// connected to, here one that no look at the URL has kept away.
func TestPrivateIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, say(200, "text/plain", "the inside"))
	tool, _ := httptool.NewUnchecked(httptool.Config{URL: s.URL}, httptool.PublicAt)
	_, err := call(t, tool, `{}`)
	wantError(t, err, "the host is at a private address, which this tool may not use")
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	tool, _ = httptool.NewUnchecked(httptool.Config{URL: "http://[::ffff:127.0.0.1]:" + port}, httptool.PublicAt)
	_, err = call(t, tool, `{}`)
	wantError(t, err, "the host is at a private address, which this tool may not use")
	equal(t, "requests", len(s.requests()), 0)
}

// A URL that can only be private is refused when the tool is made, unless the tool
// may use it.
func TestPrivateURL(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"127.0.0.1", "127.0.0.1:9000", "localhost", "LOCALHOST.:80", "api.localhost", "[::1]:80", "[::ffff:10.0.0.1]", "169.254.169.254", "0.0.0.0",
	} {
		cfg := httptool.Config{Name: "t", URL: "http://" + host + "/x"}
		_, err := httptool.New(cfg)
		wantError(t, err, `http tool "t": url: the host is no public address; want one that is, or private addresses allowed (allowPrivate)`)
		cfg.AllowPrivate = true
		if _, err := httptool.New(cfg); err != nil {
			t.Errorf("%s, allowed: %v", host, err)
		}
	}
	for _, host := range []string{"api.example.com", "8.8.8.8", "localhost.example.com", "stays", "2130706433"} {
		if _, err := httptool.New(httptool.Config{Name: "t", URL: "http://" + host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A proxy would connect for us, to addresses that nobody checks. What is dialled
// is the host itself; no packet is sent.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	var dialled []string
	tool, _ := httptool.NewUnchecked(httptool.Config{URL: "http://192.0.2.1/x"}, func(at netip.AddrPort) bool {
		dialled = append(dialled, at.String())
		return false
	})
	_, err := call(t, tool, `{}`)
	wantError(t, err, "the host is at a private address, which this tool may not use")
	equal(t, "dialled", dialled, []string{"192.0.2.1:80"})
}
