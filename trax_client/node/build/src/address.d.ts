/** How to reach the server, as `pg` takes it. */
export interface ConnectionOptions {
    host?: string;
    port?: number;
    user?: string;
    /** A function is asked at each new connection, for passwords that expire. */
    password?: string | (() => string | Promise<string>);
    database?: string;
    /** True, or the options of Node's `tls.connect`. */
    ssl?: boolean | object;
    application_name?: string;
    options?: string;
}
/** `postgresql://user@host1,host2:5432/database?sslmode=verify-full`, or options. */
export type Address = string | ConnectionOptions;
/** What `pg` gets for one host. */
export type HostConfig = ConnectionOptions & {
    connectionString?: string;
};
/** Returns a configuration for each host of an address; without one, of DATABASE_URL or PGHOST and its kin.
 * @throws UsageError for an address that is none; its text has no password. */
export declare function hosts(address: Address | undefined, env?: NodeJS.ProcessEnv): HostConfig[];
