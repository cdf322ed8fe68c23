package process

import (
	"errors"
	"fmt"
	"os"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agentsfile"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/cmd/internal/builtin"
	"github.com/turnpool/turnpool/cmd/internal/config"
)

// Agents returns the agents of a worker, the default one first: those of its
// agents file, or the built-in ones, with chat among them if there is a provider
// of models.
func Agents(cfg config.Worker) ([]*agent.Agent, error) {
	models := &models{cfg: cfg.OpenAI, made: map[openai.Config]*openai.Model{}}
	if cfg.Agents != "" {
		file, err := agentsfile.Load(cfg.Agents, agentsfile.Options{
			Getenv: os.LookupEnv, Model: models.named, AllowPrivate: cfg.PrivateTools,
		})
		if err != nil {
			return nil, fmt.Errorf("WORKER_AGENTS: %w", err)
		}
		return file.Agents, nil
	}
	agents, err := builtin.Agents()
	if err != nil || !cfg.OpenAI.Configured() {
		return agents, err
	}
	model, err := models.of(cfg.OpenAI.Model, "")
	if err != nil {
		return nil, fmt.Errorf("agent chat: %w", err)
	}
	return append(agents, builtin.Chat(model)), nil
}

// models are those of a process, each made once, so that all of its calls share
// its connections.
type models struct {
	cfg  config.OpenAI
	made map[openai.Config]*openai.Model
}

func (m *models) named(ref agentsfile.ModelRef) (agent.Model, error) {
	if ref.Provider != "openai" {
		return nil, fmt.Errorf("no provider %q; there are openai and script", ref.Provider)
	}
	return m.of(ref.Name, ref.API)
}

func (m *models) of(name, api string) (agent.Model, error) {
	if !m.cfg.Configured() {
		return nil, errors.New("OPENAI_API_KEY is not set, nor OPENAI_BASE_URL")
	}
	cfg := openai.Config{Model: name, APIKey: m.cfg.APIKey, BaseURL: m.cfg.BaseURL, API: openai.API(api)}
	if model := m.made[cfg]; model != nil {
		return model, nil
	}
	model, err := openai.New(cfg)
	if err != nil {
		return nil, err
	}
	m.made[cfg] = model
	return model, nil
}
