package agentsfile

import (
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent/script"
)

// The types of the file. Their yaml tags are the fields that there are; schema.json
// has the same ones, and a test sees to that. A field that is absent or empty is
// zero; whether it was there is the decoder's to know.

type document struct {
	Agents []*agentDoc `yaml:"agents"`
	// Scripts are taken as they are written: a template has no use for variables.
	Scripts map[string][]*script.Reply `yaml:"scripts" env:"-"`
}

type agentDoc struct {
	Name         string        `yaml:"name"`
	Description  string        `yaml:"description"`
	Model        string        `yaml:"model"`
	API          string        `yaml:"api"`
	Instructions string        `yaml:"instructions"`
	MaxSteps     int           `yaml:"maxSteps"`
	MaxDuration  time.Duration `yaml:"maxDuration"`
	ToolTimeout  time.Duration `yaml:"toolTimeout"`
	Sequential   bool          `yaml:"sequential"`
	Tools        []*toolDoc    `yaml:"tools"`
}

type toolDoc struct {
	Name        string             `yaml:"name"`
	Description string             `yaml:"description"`
	Parameters  *jsonschema.Schema `yaml:"parameters" env:"-"`
	Timeout     time.Duration      `yaml:"timeout"`
	Yields      *jsonschema.Schema `yaml:"yields" env:"-"`
	HTTP        *httpDoc           `yaml:"http"`
}

type httpDoc struct {
	Method       string            `yaml:"method"`
	URL          string            `yaml:"url"`
	Headers      map[string]string `yaml:"headers"`
	Timeout      time.Duration     `yaml:"timeout"`
	MaxResponse  size              `yaml:"maxResponse"`
	AllowPrivate *bool             `yaml:"allowPrivate"`
}

// size is a number of bytes: 4096, or "256KiB".
type size int64
