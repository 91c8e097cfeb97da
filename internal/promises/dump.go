package promises

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/servers"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
)

// recordRedis is what is in Redis after Count, and what this build finds there.
func recordRedis(ctx context.Context) (dump, found []byte, err error) {
	server, err := servers.StartRedis(ctx, servers.RedisOptions{})
	if err != nil {
		return nil, nil, err
	}
	defer server.Stop()
	store, err := redisstore.Open(redisstore.Options{URL: server.URL()})
	if err != nil {
		return nil, nil, err
	}
	if err := Count(ctx, store); err != nil {
		return nil, nil, err
	}
	lines, err := Dump(ctx, server.URL())
	if err != nil {
		return nil, nil, err
	}
	found, err = Find(ctx, store, store.Ledger)
	return []byte(strings.Join(lines, "\n") + "\n"), found, err
}

// Dump returns all that is in a Redis as commands that put it there, in order of the keys. Each argument is quoted as in Go.
func Dump(ctx context.Context, url string) (commands []string, err error) {
	client, err := connect(url)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	for _, key := range keys {
		args, err := dumpKey(ctx, client, key)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		commands = append(commands, quoted(args))
		expiry, err := client.PTTL(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		if expiry > 0 {
			commands = append(commands, quoted([]string{"PEXPIRE", key, strconv.FormatInt(expiry.Milliseconds(), 10)}))
		}
	}
	return commands, nil
}

func dumpKey(ctx context.Context, client *redis.Client, key string) ([]string, error) {
	kind, err := client.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "string":
		value, err := client.Get(ctx, key).Result()
		return []string{"SET", key, value}, err
	case "hash":
		fields, err := client.HGetAll(ctx, key).Result()
		args := []string{"HSET", key}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			args = append(args, name, fields[name])
		}
		return args, err
	}
	return nil, fmt.Errorf("a %s: nothing of offpath's is one", kind)
}

func quoted(args []string) string {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = strconv.Quote(a)
	}
	return strings.Join(list, " ")
}

// Restore carries out what Dump has returned.
func Restore(ctx context.Context, url string, commands []string) error {
	client, err := connect(url)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, command := range commands {
		var args []any
		for rest := command; rest != ""; {
			text, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return fmt.Errorf("%s: %w", command, err)
			}
			arg, err := strconv.Unquote(text)
			if err != nil {
				return fmt.Errorf("%s: %w", command, err)
			}
			args, rest = append(args, arg), strings.TrimPrefix(rest[len(text):], " ")
		}
		if err := client.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	return nil
}

func connect(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}
