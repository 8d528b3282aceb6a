package brellium

// UserService invites and removes users.
type UserService struct{ client *Client }
